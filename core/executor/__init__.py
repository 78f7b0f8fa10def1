"""The state machine of an executor."""
