"""Exec and logs of running and ended containers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from pinnace.api.pods_pb2 import AttachRequest, ExecStart, LogOptions, LogsRequest
from pinnace.kubelet.runtime.interface import StreamError
from pinnace.kubelet.runtime.process.streams import ProcessStreams
from tests.unit.kubelet.process.scene import FOR_EVER, UID, Scene, eventually, exists, shell

pytestmark = pytest.mark.processes


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene(tmp_path / "root")
    yield scene
    await scene.close()


async def chunks(*data: bytes) -> AsyncIterator[bytes]:
    for item in data:
        yield item


async def execute(scene: Scene, *command: str, stdin: bytes | None = None) -> tuple[bytes, bytes, int]:
    """The stdout, stderr and exit code of the command."""
    start = ExecStart(name="a", uid=UID, container="c0", command=command, stdin=stdin is not None)
    out, err = b"", b""
    async for response in ProcessStreams(scene.root).exec(start, chunks(stdin or b"")):
        out, err = out + response.stdout, err + response.stderr
    assert response.HasField("exit")
    return out, err, response.exit.code


async def read(scene: Scene, **options: bool) -> str:
    request = LogsRequest(name="a", uid=UID, options=LogOptions(container="c0", **options))
    return b"".join([data async for data in ProcessStreams(scene.root).logs(request)]).decode()


async def test_exec_runs_in_the_folder_and_environment_of_the_container(scene: Scene) -> None:
    pod = shell(f"touch here; echo ready; {FOR_EVER}")
    pod.spec.containers[0].env.add(name="GREETING", value="hello")
    scene.run(pod)
    await scene.says("ready")
    assert await execute(scene, "sh", "-c", "ls here; echo $GREETING; echo no >&2; exit 3") == (b"here\nhello\n", b"no\n", 3)
    assert await execute(scene, "cat", stdin=b"x" * 200_000) == (b"x" * 200_000, b"", 0)
    assert await execute(scene, "true", stdin=b"x" * 200_000) == (b"", b"", 0)
    assert await execute(scene, "sh", "-c", "kill -TERM $$") == (b"", b"", 143)
    _, error, code = await execute(scene, "no-such-program")
    assert (error, code) == (b"cannot run no-such-program: No such file or directory\n", 127)


async def test_exec_ends_with_its_first_process_or_its_reader(scene: Scene) -> None:
    scene.run(shell(FOR_EVER))
    await scene.running()
    out, _, code = await execute(scene, "sh", "-c", "sleep 1000 & echo $!")
    assert code == 0
    await eventually(lambda: not exists(int(out)))

    start = ExecStart(name="a", uid=UID, container="c0", command=["sh", "-c", "echo $$; sleep 1000"])
    async with aclosing(ProcessStreams(scene.root).exec(start, chunks())) as responses:
        pid = int((await anext(responses)).stdout)
        assert exists(pid)
    assert not exists(pid)


async def typed(lines: asyncio.Queue[bytes]) -> AsyncIterator[bytes]:
    while True:
        yield await lines.get()


async def test_shell_on_a_terminal_answers_what_is_typed(scene: Scene) -> None:
    scene.run(shell(FOR_EVER))
    await scene.running()
    start = ExecStart(name="a", uid=UID, container="c0", command=["sh"], stdin=True, tty=True)
    keys, seen, code = asyncio.Queue[bytes](), b"", None
    async with asyncio.timeout(60), aclosing(ProcessStreams(scene.root).exec(start, typed(keys))) as responses:
        for line, expected in (
            (b"test -t 0 && test -t 2 && echo a $((1 + 1))\r", b"a 2\r\n"),
            (b"stty size\r", b"24 80\r\n"),
            (b"sh -c 'echo started; exec sleep 1000'\r", b"started\r\n"),
            (b"\x03echo inter$((0))rupted\r", b"inter0rupted\r\n"),
        ):
            keys.put_nowait(line)
            while expected not in seen:
                seen += (await anext(responses)).stdout
        keys.put_nowait(b"exit 7\r")
        async for response in responses:
            code = response.exit.code if response.HasField("exit") else code
    assert code == 7


async def test_command_on_a_terminal_ends_with_its_reader(scene: Scene) -> None:
    scene.run(shell(FOR_EVER))
    await scene.running()
    start = ExecStart(name="a", uid=UID, container="c0", command=["sh", "-c", "echo $$; exec sleep 1000"], tty=True)
    async with aclosing(ProcessStreams(scene.root).exec(start, chunks())) as responses:
        pid = int((await anext(responses)).stdout)
    assert not exists(pid)


async def test_checks_of_exec_and_attach_start_nothing(scene: Scene) -> None:
    scene.run(shell(FOR_EVER))
    await scene.running()
    streams = ProcessStreams(scene.root)
    executing = streams.exec(ExecStart(name="a", uid=UID, container="c0", check=True), chunks())
    attaching = streams.attach(AttachRequest(name="a", uid=UID, container="c0", stdout=True, check=True))
    async with asyncio.timeout(10.0):
        assert [response async for response in executing] == [response async for response in attaching] == []


async def test_exec_in_an_ended_container_is_rejected(scene: Scene) -> None:
    scene.run(shell("exit 0"))
    await scene.exited()
    with pytest.raises(StreamError, match='container "c0" in pod "a" is not running'):
        check = ExecStart(name="a", uid=UID, container="c0", check=True)
        assert [response async for response in ProcessStreams(scene.root).exec(check, chunks())]
    with pytest.raises(StreamError, match='container "c0" in pod "a" is not running'):
        await execute(scene, "true")


async def test_logs_of_the_current_and_the_previous_attempt(scene: Scene) -> None:
    with pytest.raises(StreamError, match='container "c0" in pod "a" is waiting to start'):
        await read(scene)
    scene.run(shell("echo $0; exit 1"))
    await scene.exited()
    with pytest.raises(StreamError, match='previous terminated container "c0" in pod "a" not found'):
        await read(scene, previous=True)
    (scene.home(attempt=0) / "log").write_text("2026-11-22T11:45:59.000000000Z stdout F the first\n")
    scene.start("c0", 1)
    await scene.exited()
    assert (await read(scene), await read(scene, previous=True)) == ("/bin/sh\n", "the first\n")


async def test_following_ends_with_the_container(scene: Scene) -> None:
    scene.run(shell("echo one; while ! [ -e go ]; do sleep 0.02; done; echo two"))
    await scene.says("one")
    following = asyncio.ensure_future(read(scene, follow=True))
    (scene.root.pod_directory(UID) / "containers/c0/root/go").touch()
    async with asyncio.timeout(10):
        assert await following == "one\ntwo\n"
