"""Policies that are an order of the queue and a decoder."""
