"""The watch cache: the state of the cluster in memory. It serves any number of watches with one watch of etcd."""
