"""Figures of the paper on DEMT."""
