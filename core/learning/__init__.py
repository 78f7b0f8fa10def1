"""Knowledge from what has ended: run times of programs, and how well expected starts held."""
