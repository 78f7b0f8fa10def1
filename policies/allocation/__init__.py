"""Allocation without time: which jobs start now, and where; the MBPC paper and its comparators."""
