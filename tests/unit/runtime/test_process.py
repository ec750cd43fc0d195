"""The end of a component's process, and its file descriptor limit."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

pytestmark = pytest.mark.processes

PROGRAM = """
import asyncio, sys
from pinnace.runtime.process import run_component

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

sys.exit(run_component(globals()[sys.argv[1]], grace=60.0))
"""
Start = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process with the main function of this name."""
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
def test_process_ends_cleanly_after_a_signal(start: Start, number: signal.Signals) -> None:
    process = start("obedient")
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    process.send_signal(number)
    assert process.wait(20) == 0


def test_second_signal_cancels_the_shutdown(start: Start) -> None:
    """Components of Kubernetes do the same."""
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
def test_failed_process_reports_its_error(start: Start, main: str, said: str) -> None:
    process = start(main)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 1 and said in errors
    assert ("Traceback" in errors) is (main in ("broken", "exits"))


def test_task_that_ignores_cancellation_does_not_prevent_the_exit(start: Start) -> None:
    process = start("obstinate")
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0 and "1 tasks ignore their cancellation: obstinate.<locals>.task" in errors


def test_soft_limit_of_open_files_is_raised_to_the_hard_limit() -> None:
    shell = 'ulimit -Sn 200 && ulimit -Hn 300 && exec "$0" "$@"'
    done = subprocess.run(["bash", "-c", shell, sys.executable, "-c", PROGRAM, "files"], capture_output=True, timeout=20)
    assert done.stdout.split() == [b"300", b"300"]


COMMAND = """
import asyncio, signal, sys, time
from pinnace.runtime import interrupts
from pinnace.runtime.process import run_command

interrupts.raise_first_interrupt()
interrupts.exit_on_lost_interrupt()

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
    """Run a command and interrupt it after each awaited line. Return its exit code and stderr."""
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
    """Regression: asyncio raised the second KeyboardInterrupt anywhere. `get -w` hung, and other commands printed a
    traceback.
    """
    assert interrupt(main, *awaited) == (130, "")
