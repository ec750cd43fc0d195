"""Preemption: removes pods of lower priority to make room for a pod that fits on no node."""
