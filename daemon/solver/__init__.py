"""The solver processes, and the planner that asks them."""
