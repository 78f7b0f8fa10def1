"""Sites, cases and oracles that several suites share."""
