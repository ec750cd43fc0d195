"""Whether a process of the cluster is ready: what it says itself, over HTTP."""

import asyncio
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, build_opener

from pinnace.cluster.etcd import is_healthy
from pinnace.cluster.ports import is_free
from pinnace.cluster.spec import ETCD, Plan
from pinnace.runtime.http import SHUTDOWN

PROBE_TIMEOUT = 2.5
"""Seconds; a little more than a component takes to find that its own event loop is stuck."""
NO_ANSWER = "no answer"
_direct = build_opener(ProxyHandler({}))
"""Opens loopback addresses whatever http_proxy says."""


async def problem(plan: Plan, timeout: float = PROBE_TIMEOUT) -> str | None:
    """None: it is ready. Otherwise why it is not, in its own words."""
    return await asyncio.to_thread(_problem, plan, timeout)


def _problem(plan: Plan, timeout: float) -> str | None:
    if plan.component == ETCD:
        if is_healthy(plan.http, timeout):
            return None
        return f"{NO_ANSWER}: connection refused" if is_free(plan.http) else "not healthy"
    try:
        try:
            with _direct.open(f"http://{plan.http}/readyz", timeout=timeout):
                return None
        except HTTPError as error:
            with error:
                return complaint(error.read().decode(errors="replace"))
    except HTTPException:
        return "no answer in HTTP, or half of one"
    except (URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        return f"{NO_ANSWER}: {getattr(reason, 'strerror', None) or reason}".lower()


def ending(problem: str) -> bool:
    """Whether a process that runs and has this problem may be about to end: it says so, or does not listen."""
    return f"{SHUTDOWN}:" in problem or (NO_ANSWER in problem and "timed out" not in problem)


def complaint(answer: str) -> str:
    """What the failed checks of a /readyz say, on one line: "[-] cache: not loaded" is "cache: not loaded"."""
    failed = [line.removeprefix("[-]").strip() for line in answer.splitlines() if line.startswith("[-]")]
    return "; ".join(failed) or "not ready"
