"""Material of the core: records, the state, events, effects and messages."""
