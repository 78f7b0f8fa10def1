"""A folder for the path of daemons whose solvers are to stay cold."""
