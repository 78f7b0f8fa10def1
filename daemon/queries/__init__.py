"""Answers to requests that change nothing."""
