"""Replica sets: as many pods as were asked for.

    claim its pods (controllers.claiming) --> how many to make, which to delete (scaling.py, victims.py) --> status (status.py)

Source: https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/
"""
