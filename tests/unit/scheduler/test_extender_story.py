"""Extenders in a whole scheduler."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc.aio

from pinnace.api import extender_pb2 as pb
from pinnace.api.pods_pb2 import Fence
from pinnace.api.wellknown import FENCE_ANNOTATION
from pinnace.client.errors import from_status
from pinnace.scheduler.config import Configuration
from pinnace.scheduler.extenders.interface import BIND, FILTER, ExtenderConfiguration
from pinnace.scheduler.scheduler import Scheduler
from tests.builders import make_node, make_pod
from tests.unit.scheduler.cluster import QUICK, Cluster
from tests.unit.scheduler.http_extender import HttpExtender
from tests.unit.scheduler.rpc_extender import answering, rpc_extender

GPU = "example.com/gpu"


def with_extender(url: str, verb: str, **more: Any) -> Configuration:
    name = verb.capitalize() if url.startswith("grpc") else verb
    return replace(QUICK, extenders=[ExtenderConfiguration(url, {verb: name}, **more)])


async def test_pod_refused_by_an_extender_is_retried(cluster: Cluster) -> None:
    await cluster.create(make_node("n"), make_pod("a").req(cpu=1))
    with HttpExtender(filter=lambda args: {"FailedNodes": {"n": "too hot"}}).running() as extender:
        cluster.schedule("s0", configuration=with_extender(extender.url, FILTER))

        async def told() -> bool:
            return any("a FailedScheduling: 0/1 nodes are available: 1 too hot." in event for event in await cluster.events())

        await cluster.until(told)
        extender.answers["filter"] = lambda args: {"Nodes": args["Nodes"]}
        await cluster.client.nodes.modify("n", "", lambda node: node.metadata.labels.update(cooled="yes"))
        assert await cluster.bound("a") == "n"


async def test_extender_that_fails_is_named(cluster: Cluster) -> None:
    await cluster.create(make_node("n"), make_pod("a").req(cpu=1))
    with HttpExtender(filter=lambda args: 500).running() as extender:
        cluster.schedule("s0", configuration=with_extender(extender.url, FILTER))

        async def told() -> bool:
            message = f"a FailedScheduling: failed filter with extender at URL {extender.url}/filter, code 500"
            return message in await cluster.events()

        await cluster.until(told)
        extender.answers["filter"] = lambda args: {"Nodes": args["Nodes"]}
        assert await cluster.bound("a") == "n"


@asynccontextmanager
async def deciding_slowly(cluster: Cluster) -> AsyncIterator[tuple[Scheduler, threading.Event]]:
    """A scheduler that has asked its extender about the pod "a", and waits for the answer until the event is set."""
    await cluster.create(make_node("n"), make_pod("a").req(cpu=1))
    answered = threading.Event()
    with HttpExtender(filter=lambda args: answered.wait() and {"Nodes": args["Nodes"]}).running() as extender:
        scheduler = cluster.schedule("s0", configuration=with_extender(extender.url, FILTER))

        async def asked() -> bool:
            return bool(extender.asked)

        await cluster.until(asked)
        yield scheduler, answered


async def test_slow_extender_holds_decisions_up_and_nothing_else(cluster: Cluster) -> None:
    """The event loop is free, for heartbeats as for informers."""
    async with deciding_slowly(cluster) as (scheduler, answered):
        await cluster.create(make_pod("b").req(cpu=1))

        async def noticed() -> bool:
            return scheduler.count_pending() == {"in flight": 1, "active": 1}

        await cluster.until(noticed)
        answered.set()
        assert [await cluster.bound(name) for name in ("a", "b")] == ["n", "n"]


async def test_pod_that_is_deleted_while_an_extender_is_asked_is_forgotten(cluster: Cluster) -> None:
    async with deciding_slowly(cluster) as (scheduler, answered):

        async def gone() -> bool:
            return not scheduler.count_pending()

        await cluster.client.pods.delete("a", "default", grace=0)
        await cluster.until(gone)
        answered.set()
        await cluster.create(make_pod("b").req(cpu=4))
        assert await cluster.bound("b") == "n", "there is room: nothing was assumed for the other"


async def test_term_that_ends_while_an_extender_is_asked_gives_the_pod_back(cluster: Cluster) -> None:
    async with deciding_slowly(cluster) as (_, answered):
        await cluster.depose()

        async def leads_again() -> bool:
            return await cluster.leader() == "s0"

        await cluster.until(leads_again)
        answered.set()
        assert await cluster.bound("a") == "n"


async def test_resource_may_be_the_extenders_alone(cluster: Cluster) -> None:
    await cluster.create(make_node("n"), make_pod("gpu").container({GPU: 1}, {GPU: 1}), make_pod("plain").req(cpu=1))
    async with rpc_extender("Filter", answering(pb.ExtenderFilterResult(nodeNames=["n"]))) as (url, asked):
        scheduler = cluster.schedule("s0", configuration=with_extender(url, FILTER, managed_resources={GPU: True}))
        assert [await cluster.bound(name) for name in ("gpu", "plain")] == ["n", "n"]
        assert [item.pod.metadata.name for item in asked] == ["gpu"]
        await cluster.kill(scheduler)


async def test_extender_binds_under_the_leaders_fence(cluster: Cluster) -> None:
    await cluster.create(make_node("n"), make_pod("a").req(cpu=1))
    answers: list[tuple[int, str]] = []

    async def bind(args: pb.ExtenderBindingArgs, context: grpc.aio.ServicerContext) -> pb.ExtenderBindingResult:
        error = ""
        for token in (args.fence.token - 1, args.fence.token):
            fence = Fence(election=args.fence.election, token=token, secret=args.fence.secret)
            [item] = await cluster.client.pods.bind_batch([args.binding], fence)
            error = type(from_status(item.error)).__name__ if item.HasField("error") else ""
            answers.append((token, error))
        return pb.ExtenderBindingResult(error=error)

    async with rpc_extender("Bind", bind) as (url, _):
        scheduler = cluster.schedule("s0", configuration=with_extender(url, BIND))
        assert await cluster.bound("a") == "n"
        await cluster.kill(scheduler)
    fence = (await cluster.pod("a")).metadata.annotations[FENCE_ANNOTATION]
    assert fence in [f"scheduler/{token}" for token, error in answers if not error]
    assert answers[0][1] == "Fenced", "what a deposed leader's extender would be told"


async def test_extender_that_cannot_bind_is_asked_again_after_a_backoff(cluster: Cluster) -> None:
    await cluster.create(make_node("n"), make_pod("a").req(cpu=1))
    async with rpc_extender("Bind", answering(pb.ExtenderBindingResult(error="out of order"))) as (url, asked):
        scheduler = cluster.schedule("s0", configuration=with_extender(url, BIND))

        async def told() -> bool:
            said = f"failed bind with extender at URL {url}/Bind: out of order"
            return len(asked) > 1 and any(said in event for event in await cluster.events())

        await cluster.until(told)
        await cluster.kill(scheduler)


async def test_default_binder_replaces_an_ignorable_extender(cluster: Cluster) -> None:
    await cluster.create(make_node("n"), make_pod("a").req(cpu=1))
    with HttpExtender(bind=lambda args: 500).running() as extender:
        cluster.schedule("s0", configuration=with_extender(extender.url, BIND, ignorable=True))
        assert await cluster.bound("a") == "n"
        assert [verb for verb, _ in extender.asked] == ["bind"]
