"""What a job, a node, a cluster, a link, a snapshot and a plan are; the cost model."""
