"""Jobs that wait in the queues of batch systems: sent there, met, moved on."""
