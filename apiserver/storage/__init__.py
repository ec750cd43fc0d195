"""The storage interface, its implementation with etcd, and group commit with an exact outcome for each write."""
