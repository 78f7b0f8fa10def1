"""The compiled resource profile that every policy shares."""
