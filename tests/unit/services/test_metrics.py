"""What is counted, under the names and labels by which Kubernetes' dashboards ask for it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from prometheus_client import REGISTRY, generate_latest

from pinnace.api.pods_pb2 import CreatePodBatchRequest
from pinnace.api.resources import PODS
from pinnace.api.verbs_pb2 import GetRequest, WatchRequest
from pinnace.apiserver.assembly import Assembly
from pinnace.apiserver.errors import Rejected
from tests.builders import make_pod
from tests.storage.memory import MemoryStorage
from tests.unit.auth.matrix import PEOPLE, Caller

ADMIN = Caller(PEOPLE["admin"])
WHAT = {"group": "", "version": "v1", "resource": "pods", "subresource": ""}


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


@pytest.fixture
async def assembly() -> AsyncIterator[Assembly]:
    made = Assembly(MemoryStorage())
    running = asyncio.ensure_future(made.run())
    await made.opening.bootstrapped.wait()
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_requests_objects_and_events_are_counted(assembly: Assembly) -> None:
    created = {**WHAT, "verb": "POST", "batch": "true"}
    result = {**WHAT, "verb": "GET", "batch": "false"}
    events = {"group": "", "version": "v1", "resource": PODS.plural}
    before = {
        "created": value("apiserver_request_total", **created, code="OK"),
        "missed": value("apiserver_request_total", **result, code="NOT_FOUND"),
        "timed": value("apiserver_request_duration_seconds_count", **created),
        "dispatched": value("apiserver_flowcontrol_dispatched_requests_total", priority_level="workload"),
        "events": value("apiserver_watch_events_total", **events),
    }
    watching = value("apiserver_longrunning_requests", **WHAT, verb="WATCH")
    in_flight = [value("apiserver_current_inflight_requests", request_kind=kind) for kind in ("readOnly", "mutating")]
    executing = value("apiserver_flowcontrol_current_executing_requests", priority_level="workload")
    watch = assembly.methods["/pinnace.v1.Pods/Watch"]
    async with asyncio.timeout(10), aclosing(watch.stream(WatchRequest(), ADMIN)) as told:
        await anext(told)
        assert value("apiserver_longrunning_requests", **WHAT, verb="WATCH") == watching + 1
        pods = [make_pod(name).req(cpu="1").new() for name in ("a", "b", "c")]
        await assembly.methods["/pinnace.v1.Pods/CreateBatch"].call(CreatePodBatchRequest(items=pods), ADMIN)
        with pytest.raises(Rejected):
            await assembly.methods["/pinnace.v1.Pods/Get"].call(GetRequest(name="no-such"), ADMIN)
        await assembly.cacher.wait_until_fresh(5.0)
        await anext(told)
    after = {
        "created": value("apiserver_request_total", **created, code="OK"),
        "missed": value("apiserver_request_total", **result, code="NOT_FOUND"),
        "timed": value("apiserver_request_duration_seconds_count", **created),
        "dispatched": value("apiserver_flowcontrol_dispatched_requests_total", priority_level="workload"),
        "events": value("apiserver_watch_events_total", **events),
    }
    counted = {"created": 1, "missed": 1, "timed": 1, "dispatched": 3, "events": 3}
    assert {name: after[name] - before[name] for name in after} == counted
    assert value("apiserver_resource_objects", group="", resource="pods") == 3
    assert value("apiserver_longrunning_requests", **WHAT, verb="WATCH") == watching
    assert [value("apiserver_current_inflight_requests", request_kind=kind) for kind in ("readOnly", "mutating")] == in_flight
    assert value("apiserver_flowcontrol_current_executing_requests", priority_level="workload") == executing


async def test_uncalled_method_has_no_metrics(assembly: Assembly) -> None:
    """A page with a line for each code of each method has 1.5 MB, and takes as long as a heartbeat may."""
    page = generate_latest(REGISTRY).decode()
    assert len(assembly.methods) > 100 and 'code="DATA_LOSS"' not in page, "no call ends so"
