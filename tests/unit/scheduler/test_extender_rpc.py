"""Extenders over gRPC, beside a server in this process."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest

from pinnace.api import extender_pb2 as pb
from pinnace.api.core_v1_pb2 import Binding
from pinnace.api.pods_pb2 import Fence
from pinnace.scheduler.extenders.client import METHODS, RpcTransport
from pinnace.scheduler.extenders.interface import (
    BIND,
    FILTER,
    PREEMPT,
    PRIORITIZE,
    ExtenderConfiguration,
    ExtenderError,
    FilterResponse,
    NodeVictims,
    NotSent,
    ResponseLost,
    VictimUids,
)
from tests.builders import make_node, make_pod
from tests.unit.scheduler.rpc_extender import Answer, answering, rpc_extender

POD = make_pod("a").req(cpu=1).build()
NODES = [make_node("n0").build(), make_node("n1").build()]


@asynccontextmanager
async def serving(method: str, answer: Answer, **more: Any) -> AsyncIterator[tuple[RpcTransport, list[Any]]]:
    """And what was asked."""
    async with rpc_extender(method, answer) as (url, asked):
        transport = RpcTransport(ExtenderConfiguration(url, METHODS, **more))
        yield transport, asked
        await transport.close()


@pytest.mark.parametrize("by_name", [False, True])
async def test_filter(by_name: bool) -> None:
    result = pb.ExtenderFilterResult(nodeNames=["n1"], failedNodes={"n0": "no"}, failedAndUnresolvableNodes={"n0": "never"})
    async with serving("Filter", answering(result), node_cache_capable=by_name) as (transport, asked):
        found = await transport.filter(POD, NODES)
    assert found == FilterResponse(["n1"], {"n0": "no"}, {"n0": "never"})
    expected = pb.ExtenderArgs(pod=POD, nodeNames=["n0", "n1"]) if by_name else pb.ExtenderArgs(pod=POD, nodes=NODES)
    assert asked == [expected]


async def test_prioritize() -> None:
    result = pb.HostPriorityList(items=[pb.HostPriority(host="n0", score=3), pb.HostPriority(host="n1")])
    async with serving("Prioritize", answering(result)) as (transport, asked):
        assert await transport.prioritize(POD, NODES) == [("n0", 3), ("n1", 0)]
    assert asked == [pb.ExtenderArgs(pod=POD, nodes=NODES)]


@pytest.mark.parametrize("by_uid", [False, True])
async def test_preempt(by_uid: bool) -> None:
    meta = pb.MetaVictims(pods=[pb.MetaPod(uid="v")], numPDBViolations=1)
    result, victim = pb.ExtenderPreemptionResult(nodeNameToMetaVictims={"n0": meta}), make_pod("v").uid("v").build()
    async with serving("Preempt", answering(result), node_cache_capable=by_uid) as (transport, asked):
        assert await transport.preempt(POD, {"n0": NodeVictims([victim], 1)}) == {"n0": VictimUids(["v"], 1)}
    full = {} if by_uid else {"n0": pb.Victims(pods=[victim], numPDBViolations=1)}
    assert asked == [
        pb.ExtenderPreemptionArgs(pod=POD, nodeNameToVictims=full, nodeNameToMetaVictims={"n0": meta} if by_uid else {})
    ]


async def test_bind_passes_the_fence_on() -> None:
    binding, fence = Binding(), Fence(election="scheduler", token=7)
    binding.metadata.name, binding.target.name = "a", "n1"
    async with serving("Bind", answering(pb.ExtenderBindingResult())) as (transport, asked):
        await transport.bind(binding, fence)
    assert asked == [pb.ExtenderBindingArgs(binding=binding, fence=fence)]


async def test_error_of_an_extender_is_reported() -> None:
    async def broken(request: Any, context: grpc.aio.ServicerContext) -> Any:
        await context.abort(grpc.StatusCode.INTERNAL, "broken")

    async with serving("Filter", answering(pb.ExtenderFilterResult(error="out of order"))) as (transport, _):
        with pytest.raises(ExtenderError, match=r"failed filter with extender at URL grpc://.*/Filter: out of order"):
            await transport.filter(POD, NODES)
    async with serving("Bind", broken) as (transport, _):
        with pytest.raises(ExtenderError, match="/Bind, code INTERNAL: broken") as raised:
            await transport.bind(Binding(), Fence())
        assert type(raised.value) is ExtenderError
        with pytest.raises(ExtenderError, match="/Filter, code UNIMPLEMENTED"):
            await transport.filter(POD, NODES)


async def test_answer_that_cannot_be_read() -> None:
    garbage = SimpleNamespace(SerializeToString=lambda: b"\xff")
    async with serving("Bind", answering(garbage)) as (transport, _):
        with pytest.raises(ExtenderError, match="/Bind: the response is not a valid ExtenderBindingResult"):
            await transport.bind(Binding(), Fence())


async def test_answer_that_does_not_come_is_waited_for_as_long_as_the_timeout_says() -> None:
    async def silent(request: Any, context: grpc.aio.ServicerContext) -> Any:
        await asyncio.get_running_loop().create_future()

    async with serving("Bind", silent, timeout=0.1) as (transport, _):
        with pytest.raises(ResponseLost, match=r"/Bind: no response within 0.1 s"):
            await transport.bind(Binding(), Fence())


async def test_extender_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed_soon:
        port = closed_soon.getsockname()[1]
    gone = RpcTransport(ExtenderConfiguration(f"grpc://127.0.0.1:{port}", {BIND: "Bind"}))
    with pytest.raises(NotSent, match=r"/Bind: no connection$"):
        await gone.bind(Binding(), Fence())
    await gone.close()


async def test_thousands_of_nodes_go_into_one_message() -> None:
    """A server takes 4 MiB unless it is told otherwise: the documentation says how many nodes that is."""
    nodes = [make_node(f"node-{i}").label("zone", f"zone-{i % 3}").build() for i in range(3000)]
    everything = pb.ExtenderFilterResult(nodeNames=[node.metadata.name for node in nodes])
    async with serving("Filter", answering(everything)) as (transport, asked):
        assert len((await transport.filter(POD, nodes)).left) == 3000
    assert len(asked[0].nodes) == 3000


def test_all_verbs_have_a_method() -> None:
    service = pb.DESCRIPTOR.services_by_name["Extender"]
    assert set(METHODS) == {FILTER, PRIORITIZE, PREEMPT, BIND}
    assert {method.name for method in service.methods} == set(METHODS.values())
