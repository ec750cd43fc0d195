import pytest
from aetcd.rpc import WatchResponse

from pinnace.apiserver.storage.etcd.codec import decode_event, prefix_end
from pinnace.apiserver.storage.etcd.storage import Assembler


@pytest.mark.parametrize(
    ("prefix", "end"), [(b"/a/", b"/a0"), (b"a\xff", b"b"), (b"a\xff\xff", b"b"), (b"\xff", b"\0"), (b"", b"\0")]
)
def test_end_of_a_prefix(prefix: bytes, end: bytes) -> None:
    assert prefix_end(prefix) == end


def test_key_that_is_no_text_ends_nothing() -> None:
    event = WatchResponse().events.add()
    event.kv.key = b"/registry/\xff"
    assert decode_event(event).key == "/registry/\ufffd"


def response(*revisions: int, fragment: bool = False) -> WatchResponse:
    """One event a number: its revision."""
    answer = WatchResponse(fragment=fragment)
    for revision in revisions:
        answer.events.add().kv.mod_revision = revision
    return answer


class TestAssembler:
    """Revisions of what comes out, for what goes in."""

    def out(self, assembler: Assembler, answer: WatchResponse) -> list[int]:
        return [change.mod_revision for change in assembler.add(answer)]

    def test_response_is_whole(self) -> None:
        assembler = Assembler(5)
        assert self.out(assembler, response(5, 5, 6)) == [5, 5, 6]
        assert assembler.revision == 6

    def test_last_revision_of_a_fragment_waits(self) -> None:
        assembler = Assembler(5)
        assert self.out(assembler, response(5, 5, 6, fragment=True)) == [5, 5]
        assert assembler.revision == 5
        assert self.out(assembler, response(6, 7, 7, fragment=True)) == [6, 6]
        assert self.out(assembler, response(7, 8)) == [7, 7, 7, 8]
        assert assembler.revision == 8

    def test_revision_of_many_fragments(self) -> None:
        assembler = Assembler(5)
        for _ in range(3):
            assert self.out(assembler, response(5, 5, fragment=True)) == []
        assert assembler.revision == 4
        assert self.out(assembler, response(5)) == [5] * 7

    def test_events_before_the_start_are_dropped(self) -> None:
        assembler = Assembler(5)
        assert self.out(assembler, response(3, 4, 4, 5)) == [5]

    def test_surplus_over_fragments_is_dropped(self) -> None:
        assembler = Assembler(5)
        assert self.out(assembler, response(4, 4, fragment=True)) == []
        assert self.out(assembler, response(4, 5)) == [5]

    def test_nothing(self) -> None:
        assembler = Assembler(5)
        assert self.out(assembler, response()) == []
        assert assembler.revision == 4
