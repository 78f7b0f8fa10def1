"""Schedule builders for moldable jobs on one pool of equal processors."""
