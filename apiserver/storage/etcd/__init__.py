"""Storage in etcd, over gRPC channels of our own and etcd's generated messages. No other package knows etcd."""

from apiserver.storage.etcd.storage import EtcdStorage

__all__ = ["EtcdStorage"]
