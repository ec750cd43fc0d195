"""Snapshots: the objects of a cluster as one file of manifests, read and written through the Kubernetes API.

A snapshot has no identity of a cluster: another cluster, of any kind, gets its objects as new ones. `pinnace.cluster.backup`
saves etcd with its history and keys instead, and restores the same cluster.
"""
