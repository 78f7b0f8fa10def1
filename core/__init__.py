"""Pure state machines: events in, effects out."""
