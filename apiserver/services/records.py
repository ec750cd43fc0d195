"""Reading the records of sessions that are in etcd beside objects: elections, nominations, terms; and the Leases of nodes.

Somebody with etcdctl, or a newer version, may have written what cannot be read. No session must end by it, of all that follow
the same record: each place that reads says what such a record means to it.
"""

from typing import TypeVar

from google.protobuf.message import DecodeError, Message

M = TypeVar("M", bound=Message)


def read(message: type[M], value: bytes) -> M | None:
    """The record; None when it cannot be read."""
    try:
        return message.FromString(value)
    except DecodeError:
        return None
