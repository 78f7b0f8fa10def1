"""Both cores under a seeded scheduler, with every fault a site can meet.

The real state machines of daemon and executors, the real outbox and the real client protocol run
in virtual time. Everything else (network, disks, clocks, batch systems, users) is a model that one
seeded generator drives, so that a failing seed fails again, step by step:

    python -m tests.simulation --seeds 1000 --steps 2000
    python -m tests.simulation --seed 17 --trace
"""
