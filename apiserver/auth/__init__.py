"""Authentication, authorization (masters, the node authorizer, RBAC) and the audit log.

The names and messages are Kubernetes'. Authorization reads the watch cache, never etcd.
"""
