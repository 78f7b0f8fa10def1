"""The feasibility checker, apart from every algorithm, and what is proved of a plan."""
