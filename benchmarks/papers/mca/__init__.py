"""Figures and tables of the paper on MCA-HEFT."""
