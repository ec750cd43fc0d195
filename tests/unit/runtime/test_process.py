"""How a component's process ends, and what it has from the beginning."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

pytestmark = pytest.mark.processes

PROGRAM = """
import asyncio, sys
from pinnace.runtime.process import run

async def obedient(stop):
    print("up", flush=True)
    await stop.wait()

async def busy(stop):
    await obedient(stop)
    print("asked", flush=True)
    await asyncio.Event().wait()

async def cancelled(stop):
    asyncio.current_task().cancel()
    await asyncio.sleep(0)

async def broken(stop):
    raise ValueError("a bug")

async def exits(stop):
    async def task():
        sys.exit(3)
    asyncio.create_task(task())
    await stop.wait()

async def obstinate(stop):
    async def task():
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                pass
    asyncio.create_task(task(), name="obstinate")
    await asyncio.sleep(0)

async def files(stop):
    import resource
    print(*resource.getrlimit(resource.RLIMIT_NOFILE))

async def nowhere(stop):
    raise OSError("no such port")

sys.exit(run(globals()[sys.argv[1]], grace=60.0))
"""
Start = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """A process whose main is so."""
    running: list[subprocess.Popen[str]] = []

    def start_one(main: str) -> "subprocess.Popen[str]":
        pipe = subprocess.PIPE
        running.append(subprocess.Popen([sys.executable, "-c", PROGRAM, main], stdout=pipe, stderr=pipe, text=True))
        return running[-1]

    yield start_one
    for process in running:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_as_asked(start: Start, number: signal.Signals) -> None:
    process = start("obedient")
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    process.send_signal(number)
    assert process.wait(20) == 0


def test_at_the_second_signal_it_finishes_nothing(start: Start) -> None:
    """As Kubernetes' components do: who asks twice does not want to wait."""
    process = start("busy")
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    process.terminate()
    assert process.stdout.readline() == "asked\n"
    process.terminate()
    _, said = process.communicate(timeout=20)
    assert process.returncode == 1 and "still running at the second signal; cancelling" in said


@pytest.mark.parametrize(
    ("main", "said"),
    [
        ("cancelled", "cancelled"),
        ("broken", "ValueError: a bug"),
        ("nowhere", "no such port"),
        ("exits", "SystemExit was raised"),
    ],
)
def test_error_is_reported(start: Start, main: str, said: str) -> None:
    process = start(main)
    _, told = process.communicate(timeout=20)
    assert process.returncode == 1 and said in told
    assert ("Traceback" in told) is (main in ("broken", "exits"))


def test_a_task_that_ignores_its_cancellation_does_not_keep_the_process(start: Start) -> None:
    process = start("obstinate")
    _, told = process.communicate(timeout=20)
    assert process.returncode == 0 and "1 tasks ignore their cancellation: obstinate.<locals>.task" in told


def test_it_may_open_as_many_files_as_the_system_lets_it() -> None:
    shell = 'ulimit -Sn 200 && ulimit -Hn 300 && exec "$0" "$@"'
    told = subprocess.run(["bash", "-c", shell, sys.executable, "-c", PROGRAM, "files"], capture_output=True, timeout=20)
    assert told.stdout.split() == [b"300", b"300"]


COMMAND = """
import asyncio, signal, sys, time
from pinnace.runtime import interrupts
from pinnace.runtime.process import run_command

interrupts.raise_once()
interrupts.end_if_lost()

class Finalizer:
    def __del__(self):
        print("up", flush=True)
        time.sleep(20)

async def cleaning():
    try:
        print("up", flush=True)
        await asyncio.sleep(20)
    finally:
        print("cleaned", flush=True)

async def stubborn():
    try:
        await cleaning()
    finally:
        await asyncio.sleep(20)

def command():
    try:
        if sys.argv[1] == "finalizing":
            Finalizer()
        run_command(globals()[sys.argv[1]]())
    except KeyboardInterrupt:
        return interrupts.INTERRUPTED
    return 0

sys.exit(command())
"""


def interrupt(main: str, *awaited: str) -> tuple[int, str]:
    """Runs a command and interrupts it after each line that is awaited. Its exit code, and what it wrote to stderr."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", COMMAND, main], stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        for line in awaited:
            assert process.stdout.readline() == f"{line}\n"
            process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=20)[1]
        return process.returncode, said


@pytest.mark.parametrize(
    ("main", "awaited"),
    [("cleaning", ["up"]), ("stubborn", ["up", "cleaned"]), ("finalizing", ["up"])],
    ids=["first", "second", "in a finalizer"],
)
def test_interrupted_command_ends_without_a_traceback(main: str, awaited: list[str]) -> None:
    """asyncio raised the second KeyboardInterrupt wherever the program was: `get -w` hung, others printed a traceback."""
    assert interrupt(main, *awaited) == (130, "")
