"""A cluster for the tests of operators: a pytest plugin (docs/testing-operators.md).

    pytest                                      server (one process for each cluster)
      plugin: options, fixtures, reports  --->    Cluster.up: etcd, certificates, readiness
      handle: requests, manifests, nodes          forkserver: components, forked from one process that has imported them

The server ends the cluster when pytest asks, and when pytest has died. pytest imports nothing of it.
"""
