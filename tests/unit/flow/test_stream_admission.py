"""The seat of a call whose requests are streamed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from pinnace.api.nodes_pb2 import HeartbeatRequest
from pinnace.api.pods_pb2 import ExecRequest
from pinnace.api.status import Code
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.flow import control
from pinnace.apiserver.flow.control import EXEMPT, ExemptSeat, PriorityAndFairness, Seat, StreamAdmission
from pinnace.apiserver.flow.levels import BYTES_PER_SEAT, LazyRequest
from pinnace.apiserver.services import methods
from tests.unit.auth.matrix import OWN, PEOPLE, Caller, serving

read = ExecRequest.FromString


async def said(*requests: Any) -> AsyncIterator[Any]:
    for request in requests:
        yield request


async def test_first_request_waits_for_a_seat_and_no_other_does() -> None:
    flow = PriorityAndFairness(seats=2)
    taken = [flow.request_seat("workload", "eve") for _ in range(2)]
    with StreamAdmission(
        said(ExecRequest(), ExecRequest()), lambda first: flow.request_seat("workload", "eve", 1, first), read
    ) as threshold:
        hearing = asyncio.ensure_future(anext(threshold))
        await asyncio.sleep(0.01)
        assert not hearing.done()
        for seat in taken:
            seat.release()
        assert await asyncio.wait_for(hearing, 5) == ExecRequest()
        assert flow.levels["workload"].seats_in_use == 1
        threshold.release()
        assert await anext(threshold) == ExecRequest()
        assert flow.levels["workload"].seats_in_use == 0


async def test_late_message_of_an_ended_call_takes_no_seat() -> None:
    flow = PriorityAndFairness()
    with StreamAdmission(said(ExecRequest()), lambda first: flow.request_seat("workload", "eve", 1, first), read) as threshold:
        pass
    with pytest.raises(StopAsyncIteration):
        await anext(threshold)
    assert flow.levels["workload"].seats_in_use == 0


async def test_stream_has_the_seats_of_its_first_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was asked nothing when it was opened, and then said four megabytes: 400 streams of a user without any right kept
    everybody waiting for 17 s, and took 18 GB."""
    entered: list[tuple[int, Any]] = []
    enter = PriorityAndFairness.request_seat

    def noted(
        self: PriorityAndFairness, level: str | None, user: str, cost: int, request: Any, *more: Any, **rest: Any
    ) -> Seat | ExemptSeat:
        entered.append((cost, request))
        return enter(self, level, user, cost, request, *more, **rest)

    request = ExecRequest()
    request.start.namespace, request.start.name = OWN, "thing"
    request.start.command.append("x" * 3 * BYTES_PER_SEAT)
    data = request.SerializeToString()
    async with serving() as assembly:
        monkeypatch.setattr(PriorityAndFairness, "request_seat", noted)
        method = assembly.methods["/pinnace.v1.Pods/Exec"]
        with pytest.raises(Rejected) as caught:
            async with aclosing(method.stream(said(request), Caller(PEOPLE["nobody"]))) as responses:
                await anext(responses)
        assert caught.value.refusal.code is Code.PERMISSION_DENIED
        with pytest.raises(Rejected, match="pods/exec"):
            async with aclosing(method.stream(said(method.parse(data)), Caller(PEOPLE["nobody"]))) as responses:
                await anext(responses)
    assert entered == [(4, request), (4, LazyRequest(data))]


async def test_user_has_so_many_streams_that_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """To open one takes no permission: thousands of a user without roles were as many tasks, for as long as it liked."""

    async def open_one(person: str) -> asyncio.Task[object]:
        stream = assembly.methods["/pinnace.v1.Pods/Exec"].stream(said_never(), Caller(PEOPLE[person]))
        task = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        return task

    monkeypatch.setattr(methods, "MAX_STREAMS", 3)
    async with serving() as assembly:
        of_nobody = [await open_one("nobody") for _ in range(4)]
        of_others = [await open_one(person) for person in ("admin", "editor") for _ in range(3)]
        of_masters = [await open_one("admin") for _ in range(3)]
        assert [task.done() for task in of_nobody] == [False, False, False, True]
        with pytest.raises(Rejected, match="3 streams are open: close some of them"):
            await of_nobody[-1]
        assert not any(task.done() for task in (*of_others, *of_masters))
        of_nobody[0].cancel()
        await asyncio.gather(of_nobody[0], return_exceptions=True)
        another = await open_one("nobody")
        assert not another.done()
        tasks = [*of_nobody, *of_others, *of_masters, another]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def said_never() -> AsyncIterator[Any]:
    await asyncio.Event().wait()
    yield


async def test_each_request_may_have_a_seat_of_its_own() -> None:
    flow = PriorityAndFairness()
    heard = StreamAdmission(
        said(ExecRequest(), ExecRequest()), lambda first: flow.request_seat("catch-all", "eve"), read, each=True
    )
    with heard as requests:
        for _ in range(2):
            await anext(requests)
            assert flow.levels["catch-all"].seats_in_use == 1
            requests.release()
            assert flow.levels["catch-all"].seats_in_use == 0
    assert flow.levels["catch-all"].started_calls == 2


@pytest.mark.parametrize("person", ["fleet", "nobody"])
async def test_stream_without_a_seat_is_refused(monkeypatch: pytest.MonkeyPatch, person: str) -> None:
    """A conversation takes it for the end of the stream."""
    request = HeartbeatRequest(open=HeartbeatRequest.Open(holder="edge", nodes=["edge-0"]))
    async with serving() as assembly:
        monkeypatch.setattr(control, "EAGER", 0)
        monkeypatch.setattr(control, "MAX_WAITING", 0)
        method = assembly.methods["/pinnace.v1.Nodes/Heartbeat"]
        with pytest.raises(Rejected, match="too many requests"):
            async with aclosing(method.stream(said(request), Caller(PEOPLE[person]))) as responses:
                await anext(responses)


def test_silent_stream_holds_no_seat() -> None:
    with StreamAdmission(said(), lambda first: EXEMPT, read) as threshold:
        assert not threshold.waits
