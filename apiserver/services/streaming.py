"""Logs and exec: found here, answered by the kubelet of the pod's node, passed on as they come.

    caller <--> Pods.Logs, Pods.Exec <--> Kubelets (gRPC: apiserver.kubelets) <--> the node's kubelet

Nothing is gathered: a caller that reads slowly slows the kubelet down, and one that goes away ends the call there, too.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from apiserver import errors
from apiserver.cacher.resource import ResourceCache
from apiserver.errors import Rejected
from apiserver.services import containers
from apiserver.services.kubelets import Endpoint, Kubelets, endpoint_of
from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.pods_pb2 import ExecRequest, LogOptions, LogsRequest
from pinnace.api.resources import DEFAULT_NAMESPACE, NODES, PODS

PATIENCE = 10.0
"""Seconds in which an exec must say what to start."""


class Streaming:
    """With caches that are fresh, and for callers who may."""

    def __init__(self, pods: ResourceCache[Pod], nodes: ResourceCache[Node], kubelets: Kubelets) -> None:
        self._pods = pods
        self._nodes = nodes
        self._kubelets = kubelets

    async def logs(self, request: LogsRequest) -> AsyncGenerator[bytes, None]:
        check(request.options)
        pod = self._pod(request.namespace, request.name, request.uid)
        asked = LogsRequest(namespace=pod.metadata.namespace, name=request.name, options=request.options, uid=pod.metadata.uid)
        asked.options.container = containers.choose(pod, request.options.container)
        endpoint = self._endpoint(pod)
        asked.options.previous = containers.readable(pod, asked.options.container, request.options.previous)
        async with aclosing(self._kubelets.logs(endpoint, asked)) as responses:
            async for response in responses:
                yield response

    async def exec(self, first: ExecRequest, requests: AsyncIterator[ExecRequest]) -> AsyncGenerator[bytes, None]:
        start = first.start
        if not start.command:
            raise Rejected(errors.bad_request("start.command: which command? An exec needs one"))
        pod = self._pod(start.namespace, start.name, start.uid)
        asked = ExecRequest(start=start)
        asked.start.uid, asked.start.container = pod.metadata.uid, containers.choose(pod, start.container)
        endpoint = self._endpoint(pod)
        containers.executable(pod, asked.start.container)

        async def all_of_them() -> AsyncIterator[ExecRequest]:
            yield asked
            async for request in requests:
                if not request.HasField("start"):
                    yield request

        async with aclosing(self._kubelets.exec(endpoint, all_of_them())) as responses:
            async for response in responses:
                yield response

    def _pod(self, namespace: str, name: str, uid: str) -> Pod:
        entry = self._pods.get(PODS.key(namespace or DEFAULT_NAMESPACE, name))
        if entry is None:
            raise Rejected(errors.not_found(PODS, name))
        if uid and uid != entry.obj.metadata.uid:
            raise Rejected(errors.uid_mismatch(PODS, name, uid, entry.obj.metadata.uid))
        return entry.obj

    def _endpoint(self, pod: Pod) -> Endpoint:
        """Of the kubelet that has the pod."""
        name = pod.spec.nodeName
        if not name:
            hint = f"`pinnace describe pod {pod.metadata.name}` says why"
            raise Rejected(errors.bad_request(f"pod {pod.metadata.name} does not have a host assigned", hint))
        entry = self._nodes.get(NODES.key("", name))
        if entry is None:
            raise Rejected(errors.not_found(NODES, name))
        return endpoint_of(entry.obj)


async def first_of(requests: AsyncIterator[ExecRequest]) -> ExecRequest:
    """The request that says what to start. Raises Rejected."""
    try:
        async with asyncio.timeout(PATIENCE):
            first = await anext(requests, None)
    except TimeoutError:
        first = None
    if first is None or not first.HasField("start"):
        raise Rejected(errors.bad_request("start: what? The first request of an exec says it"))
    return first


def check(options: LogOptions) -> None:
    """Raises Rejected."""
    for field, least in (("tailLines", 0), ("sinceSeconds", 1), ("limitBytes", 1)):
        if options.HasField(field) and getattr(options, field) < least:
            raise Rejected(errors.bad_request(f"options.{field}: must be greater than or equal to {least}"))
    if options.HasField("sinceSeconds") and options.HasField("sinceTime"):
        raise Rejected(errors.bad_request("options: at most one of sinceTime or sinceSeconds may be specified"))
