"""Reports as one HTML page each: policies compared over replays, and experiments."""
