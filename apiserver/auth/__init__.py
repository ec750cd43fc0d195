"""Authentication, authorization (masters, the node authorizer, RBAC) and the audit log.

Names and messages are those of Kubernetes. Authorization reads the watch cache, not etcd.
"""
