import asyncio
from collections.abc import Callable

import pytest

from pinnace.cluster.etcd import is_healthy
from pinnace.cluster.processes import PortAllocator
from pinnace.cluster.spec import ProcessPlan
from pinnace.cluster.view import failed_checks, probe_readiness
from pinnace.runtime.http import StatusServer
from tests.says import says


def a_plan(http: str) -> ProcessPlan:
    return ProcessPlan("scheduler", "scheduler-0", http, http, ())


async def ask(check: Callable[[], str | None]) -> str | None:
    server = StatusServer("127.0.0.1", 0, {"informers": check}, asyncio.get_running_loop())
    server.start()
    try:
        return await probe_readiness(a_plan(server.address))
    finally:
        server.stop()


async def test_ready_process_has_no_problem() -> None:
    assert await ask(lambda: None) is None


async def test_problem_names_the_failed_check() -> None:
    assert await ask(lambda: "not synced") == "informers: not synced"


async def test_unreachable_process_is_not_ready() -> None:
    why = await probe_readiness(a_plan(f"127.0.0.1:{PortAllocator().next()}"))
    assert why is not None and why.startswith("no answer")


@pytest.mark.parametrize(
    "answer",
    [
        b"\0\0\0\4\0\0\0\0\0",
        b"HTTP/1.0 503 Down\r\nContent-Length: 500\r\n\r\n[-] election: ",
        b"HTTP/1.0 200 OK\r\n" + b"a: b\r\n" * 200,
    ],
    ids=["gRPC", "killed while it answers", "too many headers"],
)
async def test_invalid_http_response_is_not_ready(answer: bytes) -> None:
    async with says(answer) as address:
        assert await probe_readiness(a_plan(address)) == "no answer: invalid HTTP response"
        assert not await asyncio.to_thread(is_healthy, address)


def test_only_failed_checks_are_reported() -> None:
    assert failed_checks("[+] cache: ok\n[-] etcd: gone\n[-] watch: broken\nnot ready\n") == "etcd: gone; watch: broken"
    assert failed_checks("<html>") == "not ready"
