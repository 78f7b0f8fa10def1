"""The papers' figures and tables, each with one command: data, picture, and what differs."""
