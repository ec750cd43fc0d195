"""The interface's values as etcd's messages, and back. Pure; on the path of every write, so kept lean."""

from collections.abc import Iterable, Sequence
from typing import Any

from aetcd.rpc import Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest

from apiserver.storage.interface import Change, Committed, Guard, KeyValue, Refused, Write

_EQUAL: int = Compare.CompareResult.Value("EQUAL")
_CREATE: int = Compare.CompareTarget.Value("CREATE")
_MOD: int = Compare.CompareTarget.Value("MOD")

ALL_KEYS = b"\0"
"""As key and as range_end: the whole key space."""


def prefix_end(prefix: bytes) -> bytes:
    """The first key after all that begin with `prefix`."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else ALL_KEYS


def compared_keys(writes: Iterable[Write]) -> list[str]:
    """Every key that the transaction looks at, in the order of its failure branch."""
    keys = {write.key: None for write in writes}
    for write in writes:
        for guard in write.guards:
            keys[guard.key] = None
    return list(keys)


def encode_transaction(writes: Sequence[Write]) -> Any:
    """If all compares hold, all writes; else read all keys that were compared."""
    compares, success = [], []
    guards: dict[Guard, None] = {}
    for write in writes:
        key = write.key.encode()
        compares.append(Compare(result=_EQUAL, target=_MOD, key=key, mod_revision=write.expected))
        if write.value is None:
            success.append(RequestOp(request_delete_range=DeleteRangeRequest(key=key)))
        else:
            success.append(RequestOp(request_put=PutRequest(key=key, value=write.value, lease=write.lease)))
        for guard in write.guards:
            guards[guard] = None
    compares.extend(
        Compare(result=_EQUAL, target=_CREATE, key=guard.key.encode(), create_revision=guard.create_revision)
        for guard in guards
    )
    failure = [RequestOp(request_range=RangeRequest(key=key.encode())) for key in compared_keys(writes)]
    return TxnRequest(compare=compares, success=success, failure=failure)


def decode_transaction(response: Any, writes: Sequence[Write]) -> Committed | Refused:
    if response.succeeded:
        return Committed(response.header.revision)
    states = (decode_first(answer.response_range) for answer in response.responses)
    return Refused(response.header.revision, dict(zip(compared_keys(writes), states, strict=True)))


def decode_first(response: Any) -> KeyValue | None:
    return decode_key_value(response.kvs[0]) if response.kvs else None


def decode_key_value(kv: Any) -> KeyValue:
    return KeyValue(kv.key.decode(), kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease)


def decode_event(event: Any) -> Change:
    kv = event.kv
    if event.type:  # DELETE
        return Change(kv.key.decode(), None, 0, kv.mod_revision)
    return Change(kv.key.decode(), kv.value, kv.create_revision, kv.mod_revision, kv.lease)
