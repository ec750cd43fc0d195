"""Reading the log of a shim."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from pinnace.kubelet.runtime.process import streams
from pinnace.kubelet.runtime.process.shim import LogWriter
from pinnace.kubelet.runtime.process.streams import LogSelection

LINES = [f"line {number}\n" for number in range(300)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


def write(path: Path, lines: list[str], size: int = 1 << 20, files: int = 5) -> LogWriter:
    log = LogWriter(str(path), size, files)
    for line in lines:
        log.write("stdout", line.encode())
    return log


def put(path: Path, data: str) -> None:
    path.write_text(data)


async def text(path: Path, wanted: LogSelection = LogSelection()) -> str:  # noqa: B008 (immutable)
    return b"".join([data async for data in streams.read_log(path, wanted, lambda: True)]).decode()


async def test_log_is_read_across_rotated_files(path: Path) -> None:
    write(path, LINES, size=4000).close()
    assert len(list(path.parent.iterdir())) > 2
    assert await text(path) == "".join(LINES)


@pytest.mark.parametrize("tail", [0, 1, 7, 250, 299, 300, 1000])
@pytest.mark.parametrize("size", [4000, 1 << 20])
async def test_tail_is_counted_across_rotated_files(path: Path, tail: int, size: int) -> None:
    write(path, LINES, size=size).close()
    assert await text(path, LogSelection(tail=tail)) == "".join(LINES[len(LINES) - tail :] if tail < 300 else LINES)


async def test_parts_of_long_and_unfinished_lines_are_joined(path: Path) -> None:
    whole = "x" * 50_000 + "\n" + "no end"
    write(path, [whole]).close()
    assert await text(path) == whole
    stamped = await text(path, LogSelection(timestamps=True))
    assert [line.split(" ", 1)[1] for line in stamped.splitlines()] == whole.splitlines()


async def test_since_limit_and_tail_restrict_the_output(path: Path) -> None:
    stamps = [f"2026-11-22T11:45:5{number}.000000000Z" for number in range(3)]
    put(path, "".join(f"{stamp} stdout F {number}\n" for number, stamp in enumerate(stamps)))
    assert await text(path, LogSelection(since=stamps[1])) == "1\n2\n"
    assert await text(path, LogSelection(limit=3)) == "0\n1"
    assert await text(path, LogSelection(timestamps=True, tail=1)) == f"{stamps[2]} 2\n"


async def test_missing_log_is_empty(path: Path) -> None:
    assert await text(path) == ""
    put(path, "rubbish\n\n\0 \n")
    assert await text(path) == ""


class TestFollowing:
    async def test_follows_new_lines_across_rotations_until_the_container_ends(self, path: Path) -> None:
        over = False
        log = write(path, ["first\n"], size=200, files=10)
        following = streams.read_log(path, LogSelection(follow=True), lambda: over)
        shown = await anext(following)
        for number in range(20):
            log.write("stdout", b"added %d\n" % number)
            if number % 7 == 0:
                shown += await anext(following)
        log.close()
        over = True
        shown += b"".join([data async for data in following])
        assert shown.decode().splitlines() == ["first", *(f"added {number}" for number in range(20))]

    async def test_starts_with_the_tail(self, path: Path) -> None:
        write(path, LINES).close()
        following = streams.read_log(path, LogSelection(follow=True, tail=1), lambda: False)
        assert await anext(following) == LINES[-1].encode()
        await self.stops(following)

    async def stops(self, following: AsyncGenerator[bytes, None]) -> None:
        """Assert that nothing more arrives, and close the stream."""
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await anext(following)
        await following.aclose()
