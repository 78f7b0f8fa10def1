"""A laboratory of busy Slurm sites in virtual time: ``python -m benchmarks lab``."""
