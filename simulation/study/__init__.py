"""Studies: policies on pieces of job logs, in the circumstances of scenarios, from one file."""
