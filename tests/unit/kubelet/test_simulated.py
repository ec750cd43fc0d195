"""Streams of simulated containers: logs over time, terminals, forwarded connections, and their bounds."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

import pytest

from pinnace.api.pods_pb2 import (
    AttachRequest,
    ExecResponse,
    ExecStart,
    LogOptions,
    LogsRequest,
    PortForwardRequest,
    PortForwardStart,
)
from pinnace.api.status import Code
from pinnace.kubelet.addresses import PodAddresses
from pinnace.kubelet.runtime import simulated
from pinnace.kubelet.runtime.interface import StreamError, read_clocks
from pinnace.kubelet.runtime.simulated import CHUNK, SimulatedStreams
from pinnace.kubelet.runtime.simulated_machine import PodSnapshot
from pinnace.kubelet.runtime.simulated_runtime import NO_STAGES, SimulatedRuntime
from pinnace.kubelet.runtime.simulated_terminal import MAX_INPUT, CommandIo, TerminalLine
from pinnace.kubelet.runtime.stages import Behaviour, Stages, parse_stages
from tests.builders import make_pod
from tests.clock import FakeClock

DEADLINE = 10.0
STAGES = """apiVersion: pinnace.io/v1alpha1
kind: Stage
spec:
  resourceRef: {kind: Pod}
  selector: {matchLabels: {app: web}}
  logs:
    - text: "{pod} listens"
    - {text: "order {number}", intervalMilliseconds: 1000}
    - {text: "of another container", container: other}
"""


class Node:
    """A kubelet with one pod `a` and its container c0, which has run since the beginning."""

    def __init__(self, stages: Stages = NO_STAGES, **behaviour: float) -> None:
        self.clock = FakeClock(1_000_000_000.25)
        self.pod = make_pod("a").container().node("n").image("app:1").label("app", "web").build()
        self.runtime = SimulatedRuntime(Behaviour(**behaviour))
        self.runtime.prepare_pod(self.pod, PodAddresses("172.16.0.1", "10.0.0.9"))
        self.runtime.start(self.uid, "c0", 0, read_clocks(self.clock))
        self.streams = SimulatedStreams(self.find, stages, self.clock)

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    def find(self, uid: str) -> PodSnapshot | None:
        views = self.runtime.observe_containers(uid, read_clocks(self.clock))
        return PodSnapshot(self.pod, views, PodAddresses("172.16.0.1", "10.0.0.9")) if views else None

    async def logs(self, **options: object) -> list[str]:
        request = LogsRequest(uid=self.uid, name="a", options=LogOptions(container="c0", **options))
        return b"".join([chunk async for chunk in self.streams.logs(request)]).decode().splitlines()

    def exec(
        self, *command: str, stdin: Sequence[bytes] | None = None, tty: bool = False
    ) -> "asyncio.Task[list[ExecResponse]]":
        async def responses() -> list[ExecResponse]:
            start = ExecStart(uid=self.uid, name="a", container="c0", command=command, stdin=stdin is not None, tty=tty)
            return [response async for response in self.streams.exec(start, stream(stdin or ()))]

        return asyncio.ensure_future(responses())


async def stream(parts: Sequence[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
    await asyncio.Event().wait()


def code_and_output(responses: Sequence[ExecResponse]) -> tuple[int, str]:
    return responses[-1].exit.code, b"".join(response.stdout + response.stderr for response in responses).decode()


START = "container c0 of pod default/a started (image app:1)"


async def test_logs_are_the_same_on_each_request_and_grow_with_time() -> None:
    node = Node()
    assert await node.logs() == [START], "at once"
    await node.clock.advance(25)
    lines = [START, "container c0: heartbeat 1", "container c0: heartbeat 2"]
    assert await node.logs() == lines == await node.logs()
    assert await node.logs(tailLines=1) == lines[-1:]
    assert await node.logs(sinceSeconds=8) == lines[-1:]
    assert await node.logs(limitBytes=9) == [START[:9]]


async def test_logs_of_stages_replace_the_default() -> None:
    node = Node(parse_stages(STAGES, "stages"))
    await node.clock.advance(2)
    assert await node.logs() == ["a listens", "order 1", "order 2"]


async def test_previous_log_ends_with_its_attempt() -> None:
    node = Node(run_seconds=15)
    with pytest.raises(StreamError, match='previous terminated container "c0" in pod "a" not found'):
        await node.logs(previous=True)
    await node.clock.advance(100)
    ended = await node.logs()
    assert len(ended) == 2, "a log ends with the container"
    node.runtime.start(node.uid, "c0", 1, read_clocks(node.clock))
    assert await node.logs(previous=True) == ended
    assert await node.logs() == [START]


async def test_follow_ends_with_the_container() -> None:
    node = Node(run_seconds=25)
    await node.clock.advance(12)
    following = asyncio.ensure_future(node.logs(follow=True, tailLines=1))
    await node.clock.advance(5)
    assert not following.done()
    await node.clock.advance(20)
    async with asyncio.timeout(DEADLINE):
        assert await following == ["container c0: heartbeat 1", "container c0: heartbeat 2"]


async def test_stalled_reader_of_a_log_needs_one_chunk() -> None:
    node = Node()
    await node.clock.advance(10_000_000)
    async with aclosing(node.streams.logs(LogsRequest(uid=node.uid, options=LogOptions(container="c0")))) as chunks:
        sizes = [len(await anext(chunks)) for _ in range(20)]
    assert all(CHUNK <= size < CHUNK + 200 for size in sizes)


async def test_attach_shows_what_follows() -> None:
    node = Node()
    request = AttachRequest(uid=node.uid, name="a", container="c0", stdout=True)
    async with aclosing(node.streams.attach(request)) as responses:
        first = asyncio.ensure_future(anext(responses))
        await node.clock.advance(11)
        assert (await first).stdout == b"container c0: heartbeat 1\n"


async def test_exec_separates_outputs_without_a_terminal() -> None:
    *outputs, ended = await Node().exec("sh", "-c", "echo out; foo; exit 3")
    assert [output.WhichOneof("response") for output in outputs] == ["stdout", "stderr"] and ended.exit.code == 3
    with pytest.raises(StreamError, match='container "c0" in pod "a" is not running'):
        node = Node(run_seconds=0)
        await node.exec("true")


async def test_terminal_has_prompt_echo_and_editing() -> None:
    keys = [b"echo ab", b"\x7fc \x1b[A\xc3\xa4\x7fd\r", b"false\rexit\r"]
    code, output = code_and_output(await Node().exec("sh", stdin=keys, tty=True))
    assert code == 1
    assert "echo ab\b \bc ä\b \bd\r\n" in output, output
    assert output.endswith("/ # ac d\r\n/ # / # "), "the keys were typed ahead"
    assert output.count("/ # ") == 3
    assert code_and_output(await Node().exec("sh", stdin=[b"\x04"], tty=True)) == (0, "/ # \r\n")


async def test_interrupt_ends_the_command_and_not_the_shell() -> None:
    node = Node()
    running = node.exec("sh", stdin=[b"sleep 1000\r", b"\x03", b"exit\r"], tty=True)
    async with asyncio.timeout(DEADLINE):
        code, output = code_and_output(await running)
    assert code == 130 and "^C\r\n" in output
    async with asyncio.timeout(DEADLINE):
        assert (await node.exec("sleep", "1000", stdin=[b"\x03"], tty=True))[-1].exit.code == 130


async def test_command_ends_at_its_deadline_and_with_its_container() -> None:
    for seconds, behaviour in ((simulated.SESSION_SECONDS, {}), (40, {"run_seconds": 30})):
        node = Node(**behaviour)
        running = node.exec("sleep", "infinity")
        await node.clock.advance(5)
        assert not running.done()
        await node.clock.advance(seconds)
        assert (await running)[-1].exit.code == 137


async def test_disconnected_client_ends_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "MAX_SESSIONS", 1)
    node = Node()
    running = node.exec("cat", stdin=[b"x" * 1_000_000] * 9)
    await asyncio.sleep(0)
    with pytest.raises(StreamError) as refused:
        await node.exec("true")
    assert refused.value.code is Code.RESOURCE_EXHAUSTED
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    async with asyncio.timeout(DEADLINE):
        assert (await node.exec("true"))[-1].exit.code == 0, "its place is free"


async def test_command_with_a_stalled_client_reads_no_more_input() -> None:
    """The output waits for the client, the command for the output, and the input for the command."""
    taken = 0

    async def stdin() -> AsyncIterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield b"x" * 1000

    node = Node()
    start = ExecStart(uid=node.uid, name="a", container="c0", command=["cat"], stdin=True)
    async with aclosing(node.streams.exec(start, stdin())) as responses:
        await anext(responses)
        for _ in range(1000):
            await asyncio.sleep(0)
        assert taken < 100 + MAX_INPUT // 1000


async def test_output_of_a_command_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinnace.kubelet.runtime.simulated_terminal.MAX_OUTPUT", 100_000)
    code, output = code_and_output(await Node().exec("cat", stdin=[b"x" * 1_000_000]))
    assert code == 137 and len(output) <= 100_000


async def test_line_of_input_is_bounded() -> None:
    code, output = code_and_output(await Node().exec("sh", stdin=[b"x" * 200_000]))
    assert (code, output) == (0, "sh: the line is too long\n")
    line = TerminalLine()
    for _ in range(2 * MAX_INPUT):
        line.feed(b"x")
    assert line.feed(b"\r")[0] == b"x" * MAX_INPUT + b"\n"


async def test_port_forward_serves_a_page_that_names_the_pod() -> None:
    node = Node()
    sent: asyncio.Queue[PortForwardRequest] = asyncio.Queue()

    async def requests() -> AsyncIterator[PortForwardRequest]:
        while True:
            yield await sent.get()

    forward = node.streams.port_forward(PortForwardStart(uid=node.uid, name="a", port=8080), requests())
    async with asyncio.timeout(DEADLINE), aclosing(forward) as responses:
        assert (await anext(responses)).data == b"", "the connection is confirmed"
        for _ in range(2):
            sent.put_nowait(PortForwardRequest(data=b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n"))
            text = (await anext(responses)).data.decode()
            for row in (
                "pod:       a\n",
                "node:      n\n",
                "image:     app:1\n",
                "address:   10.0.0.9:8080\n",
                "request:   GET /x\n",
            ):
                assert row in text
        sent.put_nowait(PortForwardRequest(closeWrite=True))
        assert await anext(responses, None) is None


async def test_unknown_pod_is_not_found() -> None:
    with pytest.raises(StreamError, match='pod "b" is not on the nodes of this kubelet'):
        await anext(Node().streams.logs(LogsRequest(uid="other", name="b")))


async def test_end_of_input_of_pipes_remains() -> None:
    io = CommandIo(FakeClock(), terminal=False, has_input=False)
    assert (await io.read(), await io.read_line(), await io.read()) == (b"", None, b"")
