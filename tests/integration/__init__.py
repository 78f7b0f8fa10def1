"""Real processes, real sockets, real batch systems."""
