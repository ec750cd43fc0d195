"""Extenders over HTTP: what goes over the wire is Kubernetes', and whatever goes wrong is told with the URL."""

import asyncio
import socket
import threading
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch

import pytest

from pinnace.api.codec import to_dict
from pinnace.api.core_v1_pb2 import Binding
from pinnace.api.pods_pb2 import Fence
from pinnace.scheduler.extenders.client import BINDS, QUESTIONS, HttpTransport
from pinnace.scheduler.extenders.interface import (
    BIND,
    FILTER,
    PREEMPT,
    PRIORITIZE,
    ExtenderConfiguration,
    ExtenderError,
    FilterResponse,
    NodeVictims,
    NotSent,
    ResponseLost,
    VictimUids,
)
from tests.builders import make_node, make_pod
from tests.unit.scheduler.http_extender import REDIRECTS, Answer, HttpExtender

POD = make_pod("a").req(cpu=1).build()
NODES = [make_node("n0").label("zone", "east").build(), make_node("n1").build()]
BINDING = Binding()
BINDING.metadata.namespace, BINDING.metadata.name, BINDING.metadata.uid = "default", "a", "uid-a"
BINDING.target.name = "n1"
FENCE = Fence(election="scheduler", token=7, secret=b"secret")
VERBS = {verb: verb for verb in (FILTER, PRIORITIZE, PREEMPT, BIND)}


@asynccontextmanager
async def serving(answers: dict[str, Answer], **more: Any) -> AsyncIterator[tuple[HttpTransport, HttpExtender]]:
    with HttpExtender(**answers).running() as server:
        transport = HttpTransport(ExtenderConfiguration(f"{server.url}/", VERBS, **more))
        yield transport, server
        await transport.close()


async def test_nodes_are_sent_whole_or_by_name() -> None:
    both = {"filter": lambda args: {}, "prioritize": lambda args: []}
    async with serving(both) as (transport, server):
        await transport.filter(POD, NODES)
        await transport.prioritize(POD, NODES[:1])
    async with serving(both, node_cache_capable=True) as (transport, by_name):
        await transport.filter(POD, NODES)
    (verb, filtering), (_, prioritizing) = server.asked
    assert verb == "filter" and list(filtering) == ["Pod", "Nodes", "NodeNames"]
    assert filtering["Pod"]["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "1"}}
    assert [node["metadata"]["name"] for node in filtering["Nodes"]["items"]] == ["n0", "n1"]
    assert filtering["Nodes"]["items"][0]["metadata"]["labels"]["zone"] == "east" and filtering["NodeNames"] is None
    assert [node["metadata"]["name"] for node in prioritizing["Nodes"]["items"]] == ["n0"]
    assert by_name.asked[0][1]["Nodes"] is None and by_name.asked[0][1]["NodeNames"] == ["n0", "n1"]


async def test_node_that_has_changed_is_sent_as_it_is_now() -> None:
    async with serving({"filter": lambda args: {}}) as (transport, server):
        await transport.filter(POD, NODES[:1])
        await transport.filter(POD, [make_node("n0").label("zone", "west").build()])
    assert [args["Nodes"]["items"][0]["metadata"]["labels"]["zone"] for _, args in server.asked] == ["east", "west"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"NodeNames": ["n0"], "FailedNodes": {"n1": "no"}}, FilterResponse(["n0"], {"n1": "no"}, {})),
        ({"nodes": {"items": [{"metadata": {"name": "n1"}}]}, "nodenames": None}, FilterResponse(["n1"])),
        ({"nodeNames": [], "failedAndUnresolvableNodes": {"n0": "never"}}, FilterResponse([], {}, {"n0": "never"})),
        ({"Nodes": None, "NodeNames": None, "Error": ""}, FilterResponse([])),
    ],
)
async def test_filter(answer: Any, expected: FilterResponse) -> None:
    async with serving({"filter": lambda args: answer}) as (transport, _):
        assert await transport.filter(POD, NODES) == expected


@pytest.mark.parametrize("answer", [rb'{"FailedNodes": {"n1": "cut \ud83d"}}', b'{"FailedNodes": {"n1": "cut \xff"}}'])
async def test_response_that_is_no_text_is_reported(answer: bytes) -> None:
    async with serving({"filter": lambda args: answer}) as (transport, _):
        told = (await transport.filter(POD, NODES)).failed["n1"]
    assert told.startswith("cut ") and told.encode()


@pytest.mark.parametrize("status", REDIRECTS)
async def test_redirect_is_not_followed(status: int) -> None:
    """An extender could make the scheduler send pods and nodes anywhere in its network."""
    async with serving({"filter": lambda args: status, "elsewhere": lambda args: {}}) as (transport, server):
        with pytest.raises(ExtenderError, match=f"code {status}"):
            await transport.filter(POD, NODES)
    assert [verb for verb, _ in server.asked] == ["filter"]


async def test_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with serving({"filter": lambda args: {}}) as (transport, server):
        await transport.filter(POD, NODES)
    assert len(server.asked) == 1


async def test_prioritize() -> None:
    answer = [{"Host": "n0", "Score": 3}, {"host": "n1", "score": 10}]
    async with serving({"prioritize": lambda args: answer}) as (transport, _):
        assert await transport.prioritize(POD, NODES) == [("n0", 3), ("n1", 10)]


@pytest.mark.parametrize("by_uid", [False, True])
async def test_preempt(by_uid: bool) -> None:
    answer = {"NodeNameToMetaVictims": {"n0": {"Pods": [{"UID": "other"}], "NumPDBViolations": 1}}}
    victim = make_pod("v").build()
    async with serving({"preempt": lambda args: answer}, node_cache_capable=by_uid) as (transport, server):
        result = await transport.preempt(POD, {"n0": NodeVictims([victim], 2)})
    assert result == {"n0": VictimUids(["other"], 1)}
    [(_, args)] = server.asked
    sent, not_sent = ("NodeNameToMetaVictims", "NodeNameToVictims")[:: 1 if by_uid else -1]
    shown = {"UID": victim.metadata.uid} if by_uid else to_dict(victim)
    assert args[sent] == {"n0": {"Pods": [shown], "NumPDBViolations": 2}} and args[not_sent] is None


async def test_bind_passes_the_fence_on() -> None:
    async with serving({"bind": lambda args: {"Error": ""}}) as (transport, server):
        await transport.bind(BINDING, FENCE)
    fence = {"Election": "scheduler", "Token": 7, "Secret": "c2VjcmV0"}
    expected = {"PodName": "a", "PodNamespace": "default", "PodUID": "uid-a", "Node": "n1", "Fence": fence}
    assert server.asked == [("bind", expected)]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"Error": "out of order"}, ": out of order"),
        (500, ", code 500"),
        (b"sorry", ": the response is not JSON"),
        ([], ": the response: expected an object"),
        ({"NodeNames": [1]}, ": NodeNames[]: expected text"),
        ({"FailedNodes": {"n0": 1}}, ": FailedNodes[n0]: expected text"),
    ],
)
async def test_answers_that_are_none(answer: Any, problem: str) -> None:
    async with serving({"filter": lambda args: answer}) as (transport, server):
        with pytest.raises(ExtenderError) as raised:
            await transport.filter(POD, NODES)
    assert str(raised.value).startswith(f"failed filter with extender at URL {server.url}/filter{problem}")
    assert type(raised.value) is ExtenderError, "it is over: nothing more can come of it"


async def test_answer_that_does_not_come_is_waited_for_as_long_as_the_timeout_says() -> None:
    released = threading.Event()
    async with serving({"bind": lambda args: released.wait() and {}}, timeout=0.1) as (transport, _):
        with pytest.raises(ResponseLost, match=r"/bind: no response within 0.1 s"):
            await transport.bind(BINDING, FENCE)
        released.set()


@pytest.mark.parametrize("status", [502, 504])
async def test_gateway_that_has_lost_the_answer(status: int) -> None:
    async with serving({"bind": lambda args: status}) as (transport, _):
        with pytest.raises(ResponseLost, match=f"code {status}"):
            await transport.bind(BINDING, FENCE)


@pytest.fixture
def name_server() -> Iterator[threading.Event]:
    """One that hangs until the event is set. Nothing ends a thread that asks it."""
    answers = threading.Event()

    def look_up(*args: Any, **more: Any) -> Any:
        answers.wait()
        raise socket.gaierror("no such name")

    with patch("socket.getaddrinfo", look_up):
        yield answers
        answers.set()


@pytest.mark.parametrize("verb", [FILTER, PRIORITIZE, PREEMPT])
async def test_extender_calls_do_not_wait_for_a_hanging_name_server(name_server: threading.Event, verb: str) -> None:
    """Also when no thread is left that could ask the extender."""
    transport = HttpTransport(ExtenderConfiguration("http://extender.example:1", VERBS, timeout=0.02))
    ask = {
        FILTER: lambda: transport.filter(POD, NODES),
        PRIORITIZE: lambda: transport.prioritize(POD, NODES),
        PREEMPT: lambda: transport.preempt(POD, {}),
    }[verb]
    async with asyncio.timeout(5):
        for _ in range(QUESTIONS + 2):
            with pytest.raises(NotSent, match=f"/{verb}: no connection within 0.02 s"):
                await ask()
    await transport.close()


async def test_binds_do_not_wait_for_a_hanging_name_server(name_server: threading.Event) -> None:
    transport = HttpTransport(ExtenderConfiguration("http://extender.example:1", VERBS, timeout=0.02))
    async with asyncio.timeout(5):
        binds = [transport.bind(BINDING, FENCE) for _ in range(BINDS + 2)]
        assert {type(failure) for failure in await asyncio.gather(*binds, return_exceptions=True)} == {NotSent}
    await transport.close()


async def test_questions_that_were_given_up_take_no_memory(name_server: threading.Event) -> None:
    size, asked = 1 << 20, QUESTIONS + 12
    large = [make_node("n0").label("large", "x" * size).build()]
    transport = HttpTransport(ExtenderConfiguration("http://extender.example:1", VERBS, timeout=0.01))
    tracemalloc.start()
    try:
        async with asyncio.timeout(5):
            for _ in range(asked):
                with pytest.raises(NotSent):
                    await transport.filter(POD, large)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < asked * size / 2, "the encoder remembers the node once"
    await transport.close()


async def test_decisions_do_not_wait_for_binds() -> None:
    released = threading.Event()
    answers: dict[str, Answer] = {"bind": lambda args: released.wait() and {}, "filter": lambda args: {"NodeNames": ["n0"]}}
    async with serving(answers) as (transport, _):
        binds = [asyncio.ensure_future(transport.bind(BINDING, FENCE)) for _ in range(BINDS + 8)]
        assert (await transport.filter(POD, NODES)).left == ["n0"]
        assert not any(bind.done() for bind in binds)
        released.set()
        await asyncio.gather(*binds)


async def test_connection_that_breaks_leaves_it_open_what_was_done() -> None:
    async def slam(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.close()

    server = await asyncio.start_server(slam, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    transport = HttpTransport(ExtenderConfiguration(f"http://127.0.0.1:{port}", VERBS))
    with pytest.raises(ResponseLost, match="failed bind with extender at URL"):
        await transport.bind(BINDING, FENCE)
    await transport.close()
    server.close()
    await server.wait_closed()
    with pytest.raises(NotSent, match="failed bind with extender at URL"):
        await HttpTransport(ExtenderConfiguration(f"http://127.0.0.1:{port}", VERBS)).bind(BINDING, FENCE)


async def test_event_loop_is_free_meanwhile() -> None:
    released = threading.Event()
    async with serving({"filter": lambda args: released.wait() and {}}) as (transport, server):
        asking = asyncio.ensure_future(transport.filter(POD, NODES))
        await asyncio.to_thread(server.called.wait)
        released.set()
        assert await asking == FilterResponse([])
