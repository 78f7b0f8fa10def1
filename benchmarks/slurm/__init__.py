"""Real Slurm clusters on this machine."""
