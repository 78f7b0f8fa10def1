"""Commands of users and operators."""
