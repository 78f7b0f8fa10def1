"""`workflow`: published mappings and a search that begins with them."""
