"""Chaos clients that watch through gateways, and the requirements of gateway faults."""

from typing import Any
from unittest.mock import Mock

import aiohttp

from pinnace.api.core_v1_pb2 import Pod
from pinnace.cluster.spec import ClusterSpec
from pinnace.gateway.api_resources import find_resource
from pinnace.gateway.watch_events import ProtobufEncoder
from pinnace.verification.chaos import run
from pinnace.verification.chaos.faults.base import FaultArea, FaultRequirement
from pinnace.verification.chaos.faults.table import HARMLESS, KINDS
from pinnace.verification.chaos.gateways import GatewayWatchEvent, read_watch_events


def reader(*chunks: bytes) -> aiohttp.StreamReader:
    protocol: Any = Mock(_reading_paused=False)
    result = aiohttp.StreamReader(protocol, limit=1 << 16, loop=Mock())
    for chunk in chunks:
        result.feed_data(chunk)
    result.feed_eof()
    return result


async def test_gateway_events_are_read_without_a_truncated_one() -> None:
    pods = find_resource("", "v1", "pods")
    assert pods is not None
    encoder, obj = ProtobufEncoder(pods), Pod()
    obj.metadata.name = "a"
    frames = encoder.event("ADDED", obj.SerializeToString()) + encoder.bookmark("7", False)
    result = [event async for event in read_watch_events(reader(frames[:10], frames[10:] + frames[:20]))]
    assert result[0] == GatewayWatchEvent("ADDED", obj.SerializeToString())
    assert result[1].kind == "BOOKMARK" and Pod.FromString(result[1].data).metadata.resourceVersion == "7"
    assert len(result) == 2


def test_gateway_faults_need_gateways() -> None:
    without, with_two = ClusterSpec(), ClusterSpec(gateways=2)
    for name in ("kill-gateway", "roll-gateway"):
        assert (
            run.find_missing_requirement(KINDS[name], without) == FaultRequirement.GATEWAYS
            and run.find_missing_requirement(KINDS[name], with_two) == ""
        )
        assert KINDS[name].targets(with_two) == ["gateway-0", "gateway-1"]
        assert KINDS[name].area is FaultArea.GATEWAYS and name in HARMLESS
