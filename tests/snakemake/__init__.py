"""Real Snakemake on the executor plugin of integrations/snakemake."""
