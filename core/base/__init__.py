"""What the core is made of: records, the state, events, effects and messages."""
