"""Storage in etcd, with gRPC channels and etcd's generated messages. No other package uses etcd's API."""

from pinnace.apiserver.storage.etcd.storage import EtcdStorage

__all__ = ["EtcdStorage"]
