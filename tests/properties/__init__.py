"""Properties that hold for generated input."""
