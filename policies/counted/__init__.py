"""Plans by counted resources, where a queue needs more of nodes than slots."""
