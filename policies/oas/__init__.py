"""Order and allocation solved together (the OAS papers)."""
