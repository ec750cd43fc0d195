import asyncio
from collections.abc import Callable

from pinnace.cluster.ports import Ports
from pinnace.cluster.ready import complaint, problem
from pinnace.cluster.spec import Plan
from pinnace.runtime.http import StatusServer


def a_plan(http: str) -> Plan:
    return Plan("scheduler", "scheduler-0", http, http, ())


async def ask(check: Callable[[], str | None]) -> str | None:
    server = StatusServer("127.0.0.1", 0, {"informers": check}, asyncio.get_running_loop())
    server.start()
    try:
        return await problem(a_plan(server.address))
    finally:
        server.stop()


async def test_a_process_that_is_ready_has_no_problem() -> None:
    assert await ask(lambda: None) is None


async def test_a_process_that_is_not_ready_says_why() -> None:
    assert await ask(lambda: "not synced") == "informers: not synced"


async def test_a_process_that_does_not_answer_is_not_ready() -> None:
    why = await problem(a_plan(f"127.0.0.1:{Ports().next()}"))
    assert why is not None and why.startswith("no answer")


def test_only_failed_checks_are_told() -> None:
    assert complaint("[+] cache: ok\n[-] etcd: gone\n[-] watch: broken\nnot ready\n") == "etcd: gone; watch: broken"
    assert complaint("<html>") == "not ready"
