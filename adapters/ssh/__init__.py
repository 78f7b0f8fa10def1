"""Clusters by the system's OpenSSH alone: one master, one channel, nothing installed there."""
