"""Checks: all at once, in their order, none for longer than its deadline."""

import asyncio
import threading
from functools import partial

from pinnace.cli.doctor.machine import (
    DoctorCheck,
    Finding,
    FindingLevel,
    build_ok,
    build_problem,
    build_warning,
    format_findings,
    run_checks,
)


def test_line_for_each_and_what_to_do_below() -> None:
    assert format_findings(
        [build_ok("python", "3.12"), build_warning("keys", "others can read a\nb", "chmod 600 a")]
    ).splitlines() == [
        "ok       python         3.12",
        "warning  keys           others can read a b",
        "                        hint: chmod 600 a",
    ]


async def test_findings_keep_the_order_of_the_checks() -> None:
    async def late(name: str) -> list[Finding]:
        await asyncio.sleep(0.01)
        return [build_ok(name, "late")]

    result = await run_checks(
        [DoctorCheck("a", partial(late, "a")), DoctorCheck("b", lambda: [build_ok("b", "at once"), build_ok("b", "twice")])]
    )
    assert [item.check for item in result] == ["a", "b", "b"]


async def test_check_that_hangs_or_fails_has_found_that() -> None:
    ever = threading.Event()

    def hangs() -> list[Finding]:
        ever.wait()
        return []

    async def waits() -> list[Finding]:
        await asyncio.Event().wait()
        return []

    def fails() -> list[Finding]:
        raise OSError("no such device")

    checks = [DoctorCheck("disk", hangs), DoctorCheck("server", waits), DoctorCheck("files", fails)]
    result = await asyncio.wait_for(run_checks(checks, 0.05), 5)
    ever.set()
    assert [(item.level, item.check, item.message) for item in result] == [
        (FindingLevel.PROBLEM, "disk", "check timed out after 0.05 s"),
        (FindingLevel.PROBLEM, "server", "check timed out after 0.05 s"),
        (FindingLevel.PROBLEM, "files", "check failed: OSError: no such device"),
    ]
    assert build_problem("disk", "x").hint == ""
