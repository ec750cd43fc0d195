"""Robustness of a cluster as its users see it, from the outside."""
