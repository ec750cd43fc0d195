"""How a component's process ends, and what it has from the beginning."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

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
    assert process.returncode == 1 and "still busy at the second signal; cancelled" in said


@pytest.mark.parametrize(
    ("main", "said"), [("cancelled", "cancelled"), ("broken", "ValueError: a bug"), ("nowhere", "no such port")]
)
def test_what_goes_wrong_is_told(start: Start, main: str, said: str) -> None:
    process = start(main)
    _, told = process.communicate(timeout=20)
    assert process.returncode == 1 and said in told
    assert ("Traceback" in told) is (main == "broken")


def test_it_may_open_as_many_files_as_the_system_lets_it() -> None:
    shell = 'ulimit -Sn 200 && ulimit -Hn 300 && exec "$0" "$@"'
    told = subprocess.run(["bash", "-c", shell, sys.executable, "-c", PROGRAM, "files"], capture_output=True, timeout=20)
    assert told.stdout.split() == [b"300", b"300"]
