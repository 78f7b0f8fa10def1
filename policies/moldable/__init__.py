"""Moldable jobs under two criteria at once: makespan and weighted completion time.

`queue.MoldableQueue` is what everything here works on: allotments of every job and the processors
that are there over time. Bounds on it hold for the snapshot it was made from, whatever its
clusters, powers and links are.
"""
