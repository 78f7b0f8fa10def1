"""Figures of the papers on OAS."""
