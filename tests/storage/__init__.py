"""A store of the kind that etcd is, in memory: what the API server is tested on, and its world of simulations."""
