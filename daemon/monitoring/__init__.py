"""The daemon as operators see it: metrics, and notices of events."""
