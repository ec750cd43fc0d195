"""Authentication, authorization (masters, the node authorizer, RBAC) and the audit log.

The names and messages are Kubernetes'. Authentication and authorization read certificates, tokens and the watch cache, never etcd.
"""
