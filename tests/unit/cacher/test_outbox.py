from apiserver.cacher import watcher as outbox
from apiserver.cacher.watcher import Outbox, Parcel, Told, single
from apiserver.flow.account import Account, Room


def test_a_response_that_is_alone_is_passed_on_as_it_is() -> None:
    box = Outbox()
    response = b"x" * 10
    assert box.put(single(Told(response, 5)))
    taken = box.take()
    assert taken.response is response
    assert taken.revision == 5
    assert not box


def test_what_waits_is_sent_as_one() -> None:
    box = Outbox()
    for revision, response in enumerate((b"a", b"b", b"c"), 1):
        box.put(single(Told(response, revision, events=revision)))
    assert box.take() == (b"abc", 3, 6)
    assert not box


def test_what_is_sent_as_one_is_bounded() -> None:
    box = Outbox()
    half = b"x" * (outbox.MERGE_BYTES // 2)
    for revision in (1, 2, 3):
        box.put(single(Told(half, revision)))
    box.put(single(Told(b"y" * (outbox.MERGE_BYTES + 1), 4)))
    assert [box.take().revision for _ in range(3)] == [2, 3, 4]
    assert not box


def test_too_many_bytes() -> None:
    box = Outbox(max_bytes=10)
    assert box.put(single(Told(b"x" * 10, 1)))
    assert not box.put(single(Told(b"x", 2)))
    assert not box, "what waited is of no use any more"


def test_too_many_responses() -> None:
    box = Outbox(max_responses=2)
    assert box.put(single(Told(b"", 1)))
    assert box.put(single(Told(b"", 2)))
    assert not box.put(single(Told(b"", 3)))


def test_what_was_taken_makes_room() -> None:
    box = Outbox(max_bytes=10, max_responses=1)
    for revision in range(1, 5):
        assert box.put(single(Told(b"x" * 10, revision)))
        assert box.take().revision == revision


def test_what_many_wait_for_is_charged_until_the_last_of_them_lets_it_go() -> None:
    account, boxes = Account(Room()), [Outbox(), Outbox(), Outbox(max_bytes=9), Outbox()]
    parcel = Parcel(Told(b"x" * 10, 1), account, len(boxes))
    assert [box.put(parcel) for box in boxes] == [True, True, False, True]
    assert account.waiting == 10
    boxes[0].take()
    boxes[1].clear()
    assert account.waiting == 10
    boxes[3].put(single(Told(b"x", 2)))
    assert boxes[3].take().response == b"x" * 11
    assert account.waiting == 0


def test_less_may_be_sent_as_one() -> None:
    box = Outbox()
    for revision in (1, 2, 3):
        box.put(single(Told(b"x" * 10, revision)))
    assert [box.next, box.take(20).revision, box.take(5).revision] == [10, 2, 3]
