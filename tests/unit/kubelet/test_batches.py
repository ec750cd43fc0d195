"""The batch writer, with a server whose calls the test answers one by one."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from google.protobuf.wrappers_pb2 import StringValue

from pinnace.api.status import Code, Refusal, encode
from pinnace.api.verbs_pb2 import BatchItem
from pinnace.api.wire import MAX_BYTES
from pinnace.client.errors import from_refusal
from pinnace.client.workqueue import REJECTED_BASE_BACKOFF, REJECTED_MAX_BACKOFF
from pinnace.kubelet.status_manager import BatchWriter
from tests.clock import FakeClock


class Call:
    """A call that waits for the answer of the test."""

    def __init__(self, messages: Sequence[StringValue]) -> None:
        self.messages = [message.value for message in messages]
        self.answer: asyncio.Future[Sequence[BatchItem]] = asyncio.get_running_loop().create_future()

    def succeed(self) -> None:
        self.answer.set_result([BatchItem() for _ in self.messages])


class Server:
    """A fake server. `state` has the message of each key."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.calls: list[Call] = []
        self.state: dict[str, str | None] = {}
        self.settled: list[tuple[str, int]] = []
        self.refusals = {Code.INTERNAL}

    def writer(self, **options: int) -> BatchWriter[StringValue]:
        return BatchWriter("test", self._build, self._send, self._settle, clock=self.clock, **options)

    def _build(self, key: str) -> StringValue | None:
        state = self.state.get(key)
        return None if state is None else StringValue(value=state)

    async def _send(self, messages: Sequence[StringValue]) -> Sequence[BatchItem]:
        self.calls.append(Call(messages))
        return await self.calls[-1].answer

    def _settle(self, key: str, item: BatchItem) -> bool:
        self.settled.append((key, item.error.code))
        return item.error.code in self.refusals

    async def mark(self, writer: BatchWriter[StringValue], **state: str | None) -> None:
        self.state.update(state)
        for key in state:
            writer.mark_pending(key)
        await self.clock.advance(0.0)


def failed(code: Code) -> BatchItem:
    return BatchItem(error=encode(Refusal(code, "Test", "as the test wants")))


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    yield Server()


@pytest.fixture
async def writer(server: Server) -> AsyncIterator[BatchWriter[StringValue]]:
    """A writer with one call at a time and two keys per call."""
    writer = server.writer(size=2, senders=1)
    running = asyncio.create_task(writer.run())
    yield writer
    assert not running.done(), "the writer has ended"
    running.cancel()


async def test_pending_keys_are_sent_together_up_to_the_batch_size(server: Server, writer: BatchWriter[StringValue]) -> None:
    await server.mark(writer, a="a1", b="b1", c="c1")
    assert [call.messages for call in server.calls] == [["a1", "b1"]]
    server.calls[0].succeed()
    await server.clock.advance(0.0)
    assert [call.messages for call in server.calls] == [["a1", "b1"], ["c1"]]
    assert server.settled == [("a", 0), ("b", 0)]


async def test_large_messages_are_split_into_several_calls(server: Server) -> None:
    """The server would reject an oversized call on every retry."""
    writer = server.writer(senders=1)
    running = asyncio.create_task(writer.run())
    await server.mark(writer, x="blocks")
    large = "s" * (MAX_BYTES // 2)
    await server.mark(writer, **{f"k{number}": large for number in range(5)})
    for number in range(4):
        server.calls[number].succeed()
        await server.clock.advance(0.0)
    assert [len(call.messages) for call in server.calls] == [1, 2, 2, 1]
    running.cancel()


async def test_only_the_latest_of_several_changes_is_sent(server: Server, writer: BatchWriter[StringValue]) -> None:
    await server.mark(writer, x="blocks")
    await server.mark(writer, a="a1")
    await server.mark(writer, a="a2")
    server.calls[0].succeed()
    await server.clock.advance(0.0)
    assert server.calls[1].messages == ["a2"]
    assert writer.pending_count == 1


async def test_key_changed_in_flight_is_sent_again_after_the_answer(server: Server) -> None:
    writer = server.writer(size=2, senders=3)
    running = asyncio.create_task(writer.run())
    await server.mark(writer, a="a1")
    await server.mark(writer, a="a2")
    await server.mark(writer, b="b1")
    assert [call.messages for call in server.calls] == [["a1"], ["b1"]]
    server.calls[0].succeed()
    await server.clock.advance(0.0)
    assert server.calls[2].messages == ["a2"]
    running.cancel()


async def test_key_without_a_message_is_not_sent(server: Server, writer: BatchWriter[StringValue]) -> None:
    await server.mark(writer, a=None)
    assert (server.calls, writer.pending_count) == ([], 0)


WHOLE = [
    Refusal(Code.UNAVAILABLE, "", "no API server"),
    Refusal(Code.UNAUTHENTICATED, "CertificateExpired", "renew it"),
    Refusal(Code.PERMISSION_DENIED, "Forbidden", "a role is missing"),
    Refusal(Code.INTERNAL, "", "a bug of the server"),
    Refusal(Code.INVALID_ARGUMENT, "", "a bug here"),
]


@pytest.mark.parametrize("refusal", WHOLE, ids=lambda refusal: refusal.code.name)
async def test_failed_call_is_retried_with_the_current_state(
    server: Server, writer: BatchWriter[StringValue], refusal: Refusal
) -> None:
    await server.mark(writer, a="a1", b="b1")
    server.calls[0].answer.set_exception(from_refusal(refusal))
    await server.clock.advance(0.0)
    await server.mark(writer, a="a2", b=None)
    assert len(server.calls) == 1, "the retry waits for the backoff"
    await server.clock.advance(1.0)
    assert server.calls[1].messages == ["a2"]
    server.calls[1].succeed()
    await server.clock.advance(0.0)
    assert (server.settled, writer.pending_count) == ([("a", 0)], 0)


@pytest.mark.parametrize("code", [Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED])
async def test_item_with_a_transient_error_is_retried_alone(
    server: Server, writer: BatchWriter[StringValue], code: Code
) -> None:
    await server.mark(writer, a="a1", b="b1")
    server.calls[0].answer.set_result([failed(code), BatchItem()])
    await server.clock.advance(1.0)
    assert server.settled == [("b", 0)]
    assert server.calls[1].messages == ["a1"]


async def test_rejected_item_is_settled(server: Server, writer: BatchWriter[StringValue]) -> None:
    await server.mark(writer, a="a1")
    server.calls[0].answer.set_result([failed(Code.ABORTED)])
    await server.clock.advance(1.0)
    assert (server.settled, len(server.calls), writer.pending_count) == ([("a", Code.ABORTED)], 1, 0)


async def refuse(server: Server, call: int, pause: float) -> None:
    """Answer this call of one key with an error, and let `pause` seconds pass."""
    server.calls[call].answer.set_result([failed(Code.INTERNAL)])
    await server.clock.advance(pause)


async def test_refused_key_backs_off_and_blocks_no_other(server: Server, writer: BatchWriter[StringValue]) -> None:
    await server.mark(writer, a="a1")
    await refuse(server, 0, REJECTED_BASE_BACKOFF / 4)
    assert writer.pending_count == 1
    await server.mark(writer, b="b1")
    server.calls[1].succeed()
    await server.clock.advance(REJECTED_BASE_BACKOFF)
    for call in range(2, 10):
        assert server.calls[call].messages == ["a1"]
        await refuse(server, call, REJECTED_MAX_BACKOFF)
    await refuse(server, 10, REJECTED_MAX_BACKOFF / 4)
    assert len(server.calls) == 11, "the pauses grow"
    await server.clock.advance(REJECTED_MAX_BACKOFF)
    server.calls[11].succeed()
    await server.clock.advance(2 * REJECTED_MAX_BACKOFF)
    assert (len(server.calls), writer.pending_count) == (12, 0)
    await server.mark(writer, a="a2")
    await refuse(server, 12, REJECTED_BASE_BACKOFF)
    assert server.calls[13].messages == ["a2"], "the pause is reset"


async def test_change_after_a_refusal_is_sent_once_immediately(server: Server, writer: BatchWriter[StringValue]) -> None:
    await server.mark(writer, a="a1")
    await refuse(server, 0, 0.0)
    await server.mark(writer, a="a2")
    assert server.calls[1].messages == ["a2"]
    server.calls[1].succeed()
    await server.clock.advance(REJECTED_MAX_BACKOFF)
    assert (len(server.calls), writer.pending_count) == (2, 0)
