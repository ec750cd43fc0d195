from apiserver.cacher import outbox
from apiserver.cacher.outbox import Outbox, Told


def test_a_response_that_is_alone_is_passed_on_as_it_is() -> None:
    box = Outbox()
    response = b"x" * 10
    assert box.put(Told(response, 5))
    taken = box.take()
    assert taken.response is response
    assert taken.revision == 5
    assert not box


def test_what_waits_is_sent_as_one() -> None:
    box = Outbox()
    for revision, response in enumerate((b"a", b"b", b"c"), 1):
        box.put(Told(response, revision, events=revision))
    assert box.take() == (b"abc", 3, 6)
    assert not box


def test_what_is_sent_as_one_is_bounded() -> None:
    box = Outbox()
    half = b"x" * (outbox.MERGE_BYTES // 2)
    for revision in (1, 2, 3):
        box.put(Told(half, revision))
    box.put(Told(b"y" * (outbox.MERGE_BYTES + 1), 4))
    assert [box.take().revision for _ in range(3)] == [2, 3, 4]
    assert not box


def test_too_many_bytes() -> None:
    box = Outbox(max_bytes=10)
    assert box.put(Told(b"x" * 10, 1))
    assert not box.put(Told(b"x", 2))
    assert not box, "what waited is of no use any more"


def test_too_many_responses() -> None:
    box = Outbox(max_responses=2)
    assert box.put(Told(b"", 1))
    assert box.put(Told(b"", 2))
    assert not box.put(Told(b"", 3))


def test_what_was_taken_makes_room() -> None:
    box = Outbox(max_bytes=10, max_responses=1)
    for revision in range(1, 5):
        assert box.put(Told(b"x" * 10, revision))
        assert box.take().revision == revision
