"""The API server: the only component that talks to etcd. It keeps all state there, so any number of replicas may run."""
