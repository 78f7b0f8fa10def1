"""Jobs that users submit in Slurm itself, and that are ordered here."""
