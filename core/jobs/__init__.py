"""Jobs: where each may run, what it waits for, how it ends."""
