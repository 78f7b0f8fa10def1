"""Decoders on a profile of free slots and link loads over time, and replay of logs."""
