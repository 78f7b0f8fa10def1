"""Figures of the papers on OAS, and what scenarios of run times gain."""
