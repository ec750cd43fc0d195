import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import ALL
from pinnace.api.wire import Envelope
from tests.builders import make_pod
from tests.nesting import groups

LIMIT = 100
"""The nesting limit of protobuf, which includes the message itself."""


@pytest.mark.parametrize("levels", [1, 2, 16])
def test_envelope_reads_the_message(levels: int) -> None:
    pod = make_pod("a").req(cpu="1").build()
    assert Envelope(Pod, levels).read(pod.SerializeToString()) == pod
    assert Envelope(Pod, levels).read(b"") == Pod()


@pytest.mark.parametrize("levels", [1, 2, 16])
def test_nesting_limit_counts_from_the_root(levels: int) -> None:
    envelope, room = Envelope(Pod, levels), next(g for g in range(LIMIT, 0, -1) if _readable(groups(g))) - levels
    envelope.read(groups(room))
    with pytest.raises(DecodeError):
        envelope.read(groups(room + 1))


@given(st.binary(max_size=40))
def test_envelope_reads_exactly_the_decodable_messages(data: bytes) -> None:
    """Data that ends the envelope early is refused."""
    for item in (data, b"\x0c" + data, b"\x14\x0c" + data + b"\x0b"):
        if _readable(item):
            Envelope(Pod, 4).read(item)
        else:
            with pytest.raises(DecodeError):
                Envelope(Pod, 4).read(item)


def test_known_fields_have_bounded_depth() -> None:
    """Only unknown fields can exceed the limit."""

    def levels(descriptor: Descriptor, above: tuple[Descriptor, ...] = ()) -> int:
        assert descriptor not in above, f"{descriptor.full_name} contains itself"
        inside = [field.message_type for field in descriptor.fields if field.message_type is not None]
        return 1 + max((levels(item, (*above, descriptor)) for item in inside), default=0)

    assert max(levels(resource.message.DESCRIPTOR) for resource in ALL) < 20


def _readable(data: bytes) -> bool:
    try:
        Pod.FromString(data)
    except DecodeError:
        return False
    return True
