"""Schedule builders on classes of nodes, and the searches around them."""
