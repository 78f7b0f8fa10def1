"""Calls of solvers: HiGHS or CBC on programs built with PuLP, and CP-SAT."""
