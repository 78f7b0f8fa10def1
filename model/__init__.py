"""Jobs, nodes, clusters, links, snapshots and plans; the cost model."""
