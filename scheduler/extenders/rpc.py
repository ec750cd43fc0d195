"""Extenders over gRPC: the service pinnace.v1.Extender (proto/pinnace/api/extender.proto), without TLS."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from pinnace.api.core_v1_pb2 import Binding, Node, Pod
from pinnace.api.extender_pb2 import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    HostPriorityList,
    MetaPod,
    MetaVictims,
    Victims,
)
from pinnace.api.pods_pb2 import Fence
from scheduler.extenders.interface import (
    BIND,
    FILTER,
    PREEMPT,
    PRIORITIZE,
    AnswerLost,
    Demanded,
    ExtenderConfiguration,
    ExtenderError,
    Filtered,
    NotSent,
    Sacrifice,
)

R = TypeVar("R", bound=Message)

SCHEME = "grpc://"
METHODS = {FILTER: "Filter", PRIORITIZE: "Prioritize", PREEMPT: "Preempt", BIND: "Bind"}
"""The only verbs that such an extender can have."""
MAX_ANSWER = 64 << 20
"""Bytes."""
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_ANSWER),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
)
_NOT_YET = (grpc.ChannelConnectivity.IDLE, grpc.ChannelConnectivity.CONNECTING)
_OPEN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


class RpcTransport:
    def __init__(self, configuration: ExtenderConfiguration) -> None:
        self._target = configuration.url_prefix.removeprefix(SCHEME).rstrip("/")
        self._timeout = configuration.timeout
        self._by_name = configuration.node_cache_capable
        self._channel: grpc.aio.Channel | None = None  # made by the first call: it belongs to the running loop

    async def filter(self, pod: Pod, nodes: Sequence[Node]) -> Filtered:
        result = await self._call(FILTER, self._args(pod, nodes), ExtenderFilterResult)
        if result.error:
            raise ExtenderError(FILTER, self._url(FILTER), f": {result.error}")
        return Filtered(result.nodeNames, dict(result.failedNodes), dict(result.failedAndUnresolvableNodes))

    async def prioritize(self, pod: Pod, nodes: Sequence[Node]) -> Sequence[tuple[str, int]]:
        result = await self._call(PRIORITIZE, self._args(pod, nodes), HostPriorityList)
        return [(item.host, item.score) for item in result.items]

    async def preempt(self, pod: Pod, victims: Mapping[str, Sacrifice]) -> Mapping[str, Demanded]:
        args = ExtenderPreemptionArgs(pod=pod)
        for node, each in victims.items():
            if self._by_name:
                uids = [MetaPod(uid=pod.metadata.uid) for pod in each.pods]
                args.nodeNameToMetaVictims[node].CopyFrom(MetaVictims(pods=uids, numPDBViolations=each.violations))
            else:
                args.nodeNameToVictims[node].CopyFrom(Victims(pods=each.pods, numPDBViolations=each.violations))
        result = await self._call(PREEMPT, args, ExtenderPreemptionResult)
        return {
            node: Demanded([pod.uid for pod in each.pods], each.numPDBViolations)
            for node, each in result.nodeNameToMetaVictims.items()
        }

    async def bind(self, binding: Binding, fence: Fence) -> None:
        result = await self._call(BIND, ExtenderBindingArgs(binding=binding, fence=fence), ExtenderBindingResult)
        if result.error:
            raise ExtenderError(BIND, self._url(BIND), f": {result.error}")

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()

    def _args(self, pod: Pod, nodes: Sequence[Node]) -> ExtenderArgs:
        if self._by_name:
            return ExtenderArgs(pod=pod, nodeNames=[node.metadata.name for node in nodes])
        return ExtenderArgs(pod=pod, nodes=nodes)

    def _url(self, verb: str) -> str:
        return f"{SCHEME}{self._target}/{METHODS[verb]}"

    async def _call(self, verb: str, request: Message, response: type[R]) -> R:
        url, deadline = self._url(verb), asyncio.get_running_loop().time() + self._timeout
        try:
            async with asyncio.timeout_at(deadline):
                channel = await self._connected()
        except TimeoutError:
            raise NotSent(verb, url, f": no connection within {self._timeout:g} s") from None
        if channel is None:
            raise NotSent(verb, url, ": no connection")
        method = f"/pinnace.v1.Extender/{METHODS[verb]}"
        call: Any = channel.unary_unary(method, type(request).SerializeToString, response.FromString)
        try:
            answer: R | None = await call(request, timeout=max(deadline - asyncio.get_running_loop().time(), 0.001))
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise AnswerLost(verb, url, f": no answer within {self._timeout:g} s") from None
            kind = AnswerLost if error.code() in _OPEN else ExtenderError
            raise kind(verb, url, f", code {error.code().name}: {error.details()}") from None
        if answer is None:  # what gRPC makes of bytes that cannot be read
            raise ExtenderError(verb, url, f": the answer is no {response.DESCRIPTOR.name}")
        return answer

    async def _connected(self) -> grpc.aio.Channel | None:
        """None: the extender is not there. A call is only sent on a connection that is up: else it may be sent much later."""
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(self._target, options=_OPTIONS)
        while (state := self._channel.get_state(try_to_connect=True)) in _NOT_YET:
            await self._channel.wait_for_state_change(state)
        return self._channel if state is grpc.ChannelConnectivity.READY else None
