"""Real batch systems on loopback, and launchers and sites over them."""
