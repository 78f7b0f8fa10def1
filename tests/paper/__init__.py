"""The papers' set-ups and the claims of their texts."""
