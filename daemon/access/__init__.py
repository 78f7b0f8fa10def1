"""Accounts, keys and enrolment."""
