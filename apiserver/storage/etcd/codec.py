"""The interface's values as etcd's messages, and back. Pure; on the path of every write, so kept lean."""

from collections.abc import Iterable, Sequence
from typing import Any

from aetcd.rpc import Compare, TxnRequest

from apiserver.storage.interface import Change, Committed, Guard, KeyValue, Refused, Write

_CREATE: int = Compare.CompareTarget.Value("CREATE")
_MOD: int = Compare.CompareTarget.Value("MOD")

ALL_KEYS = b"\0"
"""As key and as range_end: the whole key space."""


def prefix_end(prefix: bytes) -> bytes:
    """The first key after all that begin with `prefix`."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else ALL_KEYS


def compared_keys(writes: Iterable[Write]) -> list[str]:
    """Every key that the transaction looks at, in the order of its failure branch: first those that are written."""
    keys = {write.key: None for write in writes}
    for write in writes:
        for guard in write.guards:
            keys[guard.key] = None
    return list(keys)


def encode_transaction(writes: Sequence[Write]) -> Any:
    """If all compares hold, all writes; else read all keys that were compared.

    Fields are set in place: three times as fast as nesting constructors, which copy (1.4 against 5.2 us a write).
    """
    request = TxnRequest()
    add_compare, add_success, add_failure = request.compare.add, request.success.add, request.failure.add
    guards: set[Guard] = set()
    for write in writes:
        key = write.key.encode()
        compare = add_compare()
        compare.target, compare.key, compare.mod_revision = _MOD, key, write.expected
        add_failure().request_range.key = key
        if write.value is None:
            add_success().request_delete_range.key = key
        else:
            put = add_success().request_put
            put.key = key
            put.value = write.value
            if write.lease:
                put.lease = write.lease
            elif write.expected:
                put.ignore_lease = True
        guards.update(write.guards)
    for guard in guards:
        if guard.mod_revision:  # which a key has only once: it says when it was created, too
            add_compare(target=_MOD, key=guard.key.encode(), mod_revision=guard.mod_revision)
        else:
            add_compare(target=_CREATE, key=guard.key.encode(), create_revision=guard.create_revision)
    for compared in compared_keys(writes)[len(writes) :]:
        add_failure().request_range.key = compared.encode()
    return request


def decode_transaction(response: Any, writes: Sequence[Write]) -> Committed | Refused:
    if response.succeeded:
        return Committed(response.header.revision)
    found = (decode_first(answer.response_range) for answer in response.responses)
    return Refused(response.header.revision, dict(zip(compared_keys(writes), found, strict=True)))


def decode_first(response: Any) -> KeyValue | None:
    return decode_key_value(response.kvs[0]) if response.kvs else None


def decode_key_value(kv: Any) -> KeyValue:
    return KeyValue(_text(kv.key), kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease)


def decode_event(event: Any) -> Change:
    kv = event.kv
    if event.type:  # DELETE
        return Change(_text(kv.key), None, 0, kv.mod_revision)
    return Change(_text(kv.key), kv.value, kv.create_revision, kv.mod_revision, kv.lease)


def _text(key: bytes) -> str:
    """The watch is of all keys, and others may have written some that are no text: those are nobody's here."""
    return key.decode(errors="replace")
