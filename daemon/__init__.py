"""The service `coallocd`: the loop around the core, its timer, outbox and launches."""
