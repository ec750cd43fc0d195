"""An in-memory store with the semantics of etcd, for the tests of the API server and for the simulation."""
