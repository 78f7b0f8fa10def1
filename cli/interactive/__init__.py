"""Commands that follow a job while it runs."""
