"""The storage interface, etcd as its implementation, and group commit with exactly known outcomes."""
