"""The helper process: order of responses, rejected requests, and exit."""

import asyncio
from pathlib import Path

import pytest

from pinnace.cluster.links import HelperError, HelperProcess

pytestmark = pytest.mark.processes

DEADLINE = 10.0
SCRIPT = """
import asyncio, os
from pinnace.runtime import process

async def add(a, b):
    return a + b

async def refuse():
    raise process.RequestRefused("not today")

async def die():
    os._exit(3)

asyncio.run(process.serve_requests({"add": add, "refuse": refuse, "die": die}))
"""


@pytest.fixture(autouse=True)
def a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_helper.py").write_text(SCRIPT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


async def test_answers_come_in_the_order_of_the_requests() -> None:
    async with HelperProcess("a_helper") as helper:
        answers = [helper.send_request("add", a=1, b=number) for number in range(5)]
        assert [await answer for answer in answers] == [1, 2, 3, 4, 5]


async def test_rejected_request_raises_its_message_and_the_helper_continues() -> None:
    async with HelperProcess("a_helper") as helper:
        with pytest.raises(HelperError, match="not today"):
            await helper.request_result("refuse")
        assert await helper.request_result("add", a=1, b=1) == 2


async def test_request_to_a_helper_that_exits_fails() -> None:
    async with HelperProcess("a_helper") as helper:
        waiting = [asyncio.ensure_future(helper.request_result(do)) for do in ("die", "refuse")]
        async with asyncio.timeout(DEADLINE):
            for item in waiting:
                with pytest.raises(HelperError, match="gone"):
                    await item
        with pytest.raises(HelperError, match="gone"):
            helper.send_request("add", a=1, b=1)
