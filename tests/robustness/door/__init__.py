"""Attacks on a gateway of a real cluster, and their effect on another user. See pinnace/chaos/attacks for the attacks."""
