"""Kubelets as services see them: where one is, and what can be asked of it."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import NamedTuple, Protocol

from apiserver.errors import Rejected
from pinnace.api.core_v1_pb2 import Node
from pinnace.api.kubelet_pb2 import StatsRequest, StatsResponse
from pinnace.api.pods_pb2 import ExecRequest, LogsRequest
from pinnace.api.status import Code, Refusal

_PREFERRED = ("ExternalIP", "ExternalDNS", "InternalIP")
"""Types of a node's addresses. Those of virtual nodes are of a network that is pretended, but for the external one."""


class Endpoint(NamedTuple):
    """`node`: one of those that are there."""

    node: str
    host: str
    port: int


class Kubelets(Protocol):
    """All raise Rejected. What is streamed is encoded: it is passed on as it is."""

    def logs(self, at: Endpoint, request: LogsRequest) -> AsyncGenerator[bytes, None]: ...

    def exec(self, at: Endpoint, requests: AsyncIterator[ExecRequest]) -> AsyncGenerator[bytes, None]: ...

    async def stats(self, at: Endpoint, request: StatsRequest, timeout: float) -> StatsResponse: ...


class NoKubelets:
    """Of a server that has no means to be known by kubelets."""

    async def logs(self, at: Endpoint, request: LogsRequest) -> AsyncGenerator[bytes, None]:
        raise Rejected(_no_means())
        yield b""

    async def exec(self, at: Endpoint, requests: AsyncIterator[ExecRequest]) -> AsyncGenerator[bytes, None]:
        raise Rejected(_no_means())
        yield b""

    async def stats(self, at: Endpoint, request: StatsRequest, timeout: float) -> StatsResponse:
        raise Rejected(_no_means())


def endpoint_of(node: Node) -> Endpoint:
    """Raises Rejected when the node publishes none."""
    name, status = node.metadata.name, node.status
    addresses = {each.type: each.address for each in status.addresses}
    host = next((addresses[kind] for kind in _PREFERRED if kind in addresses), "")
    port = status.daemonEndpoints.kubeletEndpoint.Port
    if not port or not host:
        message = (
            f'node "{name}" serves neither logs nor exec nor what is used: its kubelet publishes no endpoint (see its --listen)'
        )
        raise Rejected(Refusal(Code.FAILED_PRECONDITION, "NoKubeletEndpoint", message))
    return Endpoint(name, host, port)


def _no_means() -> Refusal:
    message = "this API server has no certificate to show to kubelets: see its option --kubelet-client-certificate"
    return Refusal(Code.FAILED_PRECONDITION, "NoKubeletClient", message)
