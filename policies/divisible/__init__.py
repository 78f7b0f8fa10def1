"""Divisible jobs: pieces of whole chunks that fill what other jobs leave idle."""
