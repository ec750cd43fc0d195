"""What a server answers that refuses some of a batch."""

from pinnace.api.status import Code, Refusal, encode
from pinnace.api.verbs_pb2 import BatchItem


def denied(name: str) -> BatchItem:
    """Of an item that a webhook has denied."""
    return BatchItem(name=name, error=encode(Refusal(Code.PERMISSION_DENIED, "Forbidden", "denied by a webhook")))
