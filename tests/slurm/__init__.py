"""Real Slurm clusters on this machine, and what is tested on them."""
