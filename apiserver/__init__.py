"""The API server: the only component that connects to etcd. All state is in etcd, so any number of replicas can run."""
