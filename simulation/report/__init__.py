"""Reports of replays as one HTML page each."""
