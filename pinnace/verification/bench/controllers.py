"""Row `controllers`: the pods of StatefulSets, the pods of a DaemonSet, or the Jobs of CronJobs, and then the cluster at rest.

    statefulset   sets of SET_SIZE pods each, `Parallel`       rate: ready pods per second
    daemonset     one set, a pod for each node                 rate: ready pods per second
    cronjob       suspended jobs of every minute               rate: jobs per second after the minute; no rest, as each minute
                                                               has its jobs

The rate includes the scheduler and the kubelets. kube-controller-manager writes with 20 requests per second and bursts of 30
(`--kube-api-qps`, `--kube-api-burst`), and each pod or job needs at least one.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from pinnace.api.codec import from_dict
from pinnace.api.resources import CRON_JOBS, DAEMON_SETS, JOBS, PODS, STATEFUL_SETS
from pinnace.client.client import Client
from pinnace.cluster.startup import StartProgress
from pinnace.verification.bench import BenchError
from pinnace.verification.bench.calibration import BenchCluster
from pinnace.verification.bench.report import BenchRun
from pinnace.verification.bench.usage import ProcessMeter

KINDS = ("statefulset", "daemonset", "cronjob")
SET_SIZE = 100
TIMEOUT = 300.0
POLL = 0.1
SETTLING = 5.0
"""Seconds until the effects of the work have ended: events, bookmarks."""
MINUTE = 60.0
MARGIN = 30.0
"""Minimum number of seconds in which the cron jobs are created, before the minute at which their jobs are due."""
_LABELS = {"app": "bench"}


async def measure_controllers(bench: BenchCluster, kind: str, count: int, rest: float, progress: StartProgress) -> BenchRun:
    """Measure one of KINDS. `count`: of pods or CronJobs. Raises BenchError."""
    client = bench.clients[0]
    if kind == "cronjob":
        progress.waiting(f"{count:,} cron jobs to exist")
        began, wait = await _create_cron_jobs(client, count)
    else:
        began = time.monotonic()
        wait = await (_create_stateful_sets if kind == "statefulset" else _create_daemon_set)(client, count)
    working = ProcessMeter(bench.cluster.state)
    progress.waiting(f"{count:,} {'jobs' if kind == 'cronjob' else 'pods'}")
    await wait()
    seconds, usage = time.monotonic() - began, working.read_usage()
    written = 0
    if kind != "cronjob":
        progress.waiting(f"{rest:g} s at rest")
        await asyncio.sleep(SETTLING)
        revision, resting = await _get_revision(client), ProcessMeter(bench.cluster.state)
        await asyncio.sleep(rest)
        written = await _get_revision(client) - revision
        rested = resting.read_usage()
        usage |= {f"{name} at rest": used for name, used in rested.items() if name.startswith("controllers")}
    return BenchRun(
        bench.calibration,
        usage,
        samples={"complete": [seconds]},
        items=count,
        rate=count / seconds,
        counts={"seconds_at_rest": round(rest) if kind != "cronjob" else 0, "revisions_of_etcd_at_rest": written},
    )


Wait = Callable[[], Awaitable[None]]


def _template() -> dict[str, Any]:
    return {"metadata": {"labels": _LABELS}, "spec": {"containers": [{"name": "c", "image": "example.com/app:1"}]}}


async def _create_stateful_sets(client: Client, count: int) -> Wait:
    sizes = [min(SET_SIZE, count - start) for start in range(0, count, SET_SIZE)]
    for number, size in enumerate(sizes):
        labels = _LABELS | {"set": str(number)}
        template = _template() | {"metadata": {"labels": labels}}
        spec = {"replicas": size, "selector": {"matchLabels": labels}, "podManagementPolicy": "Parallel", "template": template}
        metadata = {"name": f"set-{number}", "namespace": "default"}
        await client.of(STATEFUL_SETS).create(from_dict(STATEFUL_SETS, {"metadata": metadata, "spec": spec}))

    async def ready() -> int:
        return sum(item.status.readyReplicas for item in (await client.of(STATEFUL_SETS).list("default")).items)

    return lambda: _wait_for(ready, count)


async def _create_daemon_set(client: Client, count: int) -> Wait:
    spec = {"selector": {"matchLabels": _LABELS}, "template": _template()}
    metadata = {"name": "agent", "namespace": "default"}
    await client.of(DAEMON_SETS).create(from_dict(DAEMON_SETS, {"metadata": metadata, "spec": spec}))

    async def ready() -> int:
        return (await client.of(DAEMON_SETS).get("agent", "default")).status.numberReady

    return lambda: _wait_for(ready, count)


async def _create_cron_jobs(client: Client, count: int) -> tuple[float, Wait]:
    """Create the cron jobs. Return the time of the minute at which their jobs are due, in monotonic seconds, when it comes."""
    due = (time.time() // MINUTE + 1) * MINUTE
    if due - time.time() < MARGIN:
        await asyncio.sleep(due - time.time())
        due += MINUTE
    job = {"suspend": True, "template": {"spec": _template()["spec"] | {"restartPolicy": "Never"}}}
    spec = {"schedule": "* * * * *", "jobTemplate": {"spec": job}}
    for number in range(count):
        metadata = {"name": f"cron-{number}", "namespace": "default"}
        await client.of(CRON_JOBS).create(from_dict(CRON_JOBS, {"metadata": metadata, "spec": spec}))
    if time.time() > due or (await client.of(JOBS).list("default")).items:
        raise BenchError(f"{count:,} cron jobs could not be created before the next minute: use fewer")
    await asyncio.sleep(due - time.time())

    async def active() -> int:
        return sum(bool(item.status.active) for item in (await client.of(CRON_JOBS).list("default")).items)

    return time.monotonic(), lambda: _wait_for(active, count)


async def _wait_for(measure: Callable[[], Awaitable[int]], count: int) -> None:
    deadline = time.monotonic() + TIMEOUT
    while (reached := await measure()) < count:
        if time.monotonic() > deadline:
            raise BenchError(f"only {reached:,} of {count:,} after {TIMEOUT:g} s")
        await asyncio.sleep(POLL)


async def _get_revision(client: Client) -> int:
    """Return the current revision of etcd."""
    return (await client.of(PODS).list("kube-system")).resource_version
