"""The watch cache: the state of the cluster in memory, and any number of watches of it, for one watch of etcd."""
