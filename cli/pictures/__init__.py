"""Gantt charts in a terminal, as pictures and as pages."""
