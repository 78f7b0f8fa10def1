"""Grid Engine."""
