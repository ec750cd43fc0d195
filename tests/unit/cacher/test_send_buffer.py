from pinnace.apiserver.cacher import watcher as buffer
from pinnace.apiserver.cacher.event_history import EncodedResponse
from pinnace.apiserver.cacher.watcher import SendBuffer, SharedResponse, uncharged_response
from pinnace.apiserver.flow.send_budget import SendBudget, SendPool


def test_response_that_is_alone_is_passed_on_as_it_is() -> None:
    box = SendBuffer()
    response = b"x" * 10
    assert box.put_response(uncharged_response(EncodedResponse(response, 5)))
    taken = box.take_response()
    assert taken.response is response
    assert taken.revision == 5
    assert not box


def test_buffered_events_are_coalesced() -> None:
    box = SendBuffer()
    for revision, response in enumerate((b"a", b"b", b"c"), 1):
        box.put_response(uncharged_response(EncodedResponse(response, revision, events=revision)))
    assert box.take_response() == (b"abc", 3, 6)
    assert not box


def test_coalesced_events_are_bounded() -> None:
    box = SendBuffer()
    half = b"x" * (buffer.MERGE_BYTES // 2)
    for revision in (1, 2, 3):
        box.put_response(uncharged_response(EncodedResponse(half, revision)))
    box.put_response(uncharged_response(EncodedResponse(b"y" * (buffer.MERGE_BYTES + 1), 4)))
    assert [box.take_response().revision for _ in range(3)] == [2, 3, 4]
    assert not box


def test_too_many_bytes() -> None:
    box = SendBuffer(max_bytes=10)
    assert box.put_response(uncharged_response(EncodedResponse(b"x" * 10, 1)))
    assert not box.put_response(uncharged_response(EncodedResponse(b"x", 2)))
    assert not box, "what waited is of no use any more"


def test_too_many_responses() -> None:
    box = SendBuffer(max_responses=2)
    assert box.put_response(uncharged_response(EncodedResponse(b"", 1)))
    assert box.put_response(uncharged_response(EncodedResponse(b"", 2)))
    assert not box.put_response(uncharged_response(EncodedResponse(b"", 3)))


def test_taken_events_free_room() -> None:
    box = SendBuffer(max_bytes=10, max_responses=1)
    for revision in range(1, 5):
        assert box.put_response(uncharged_response(EncodedResponse(b"x" * 10, revision)))
        assert box.take_response().revision == revision


def test_shared_event_is_charged_until_the_last_release() -> None:
    budget, boxes = SendBudget(SendPool()), [SendBuffer(), SendBuffer(), SendBuffer(max_bytes=9), SendBuffer()]
    shared = SharedResponse(EncodedResponse(b"x" * 10, 1), budget, len(boxes))
    assert [box.put_response(shared) for box in boxes] == [True, True, False, True]
    assert budget.waiting == 10
    boxes[0].take_response()
    boxes[1].clear()
    assert budget.waiting == 10
    boxes[3].put_response(uncharged_response(EncodedResponse(b"x", 2)))
    assert boxes[3].take_response().response == b"x" * 11
    assert budget.waiting == 0


def test_less_may_be_sent_as_one() -> None:
    box = SendBuffer()
    for revision in (1, 2, 3):
        box.put_response(uncharged_response(EncodedResponse(b"x" * 10, revision)))
    assert [box.next_size, box.take_response(20).revision, box.take_response(5).revision] == [10, 2, 3]
