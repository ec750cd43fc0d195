"""Attacks on a gateway of a real cluster, and their effect on another user. See pinnace/verification/chaos/attacks for the
attacks."""
