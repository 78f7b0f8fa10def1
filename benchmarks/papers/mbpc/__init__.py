"""Figures of the paper on MBPC."""
