"""Calls to kubelets over gRPC, their endpoints, and checks of the requested container. The messages are Kubernetes'.

Each call opens a connection, because such calls are rare. If a kubelet is unreachable or stops responding, the call fails with
UNAVAILABLE within seconds.

Source: pkg/kubelet/kubelet_pods.go (validateContainerLogStatus) and pkg/registry/core/pod/strategy.go of Kubernetes
"""

import asyncio
import ipaddress
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from typing import Any, NamedTuple, Protocol

import grpc
import grpc.aio
from google.protobuf.message import Message

from pinnace.api.core_v1_pb2 import ContainerStatus, Node, Pod
from pinnace.api.kubelet_pb2 import StatsRequest, StatsResponse
from pinnace.api.pods import all_containers, ended
from pinnace.api.pods_pb2 import AttachRequest, ExecRequest, LogsRequest, PortForwardRequest
from pinnace.api.status import Code, Refusal
from pinnace.api.wellknown import DEFAULT_CONTAINER_ANNOTATION
from pinnace.apiserver.errors import Rejected, bad_request
from pinnace.pki.authority import SERVER_NAME
from pinnace.runtime import grpc_stream
from pinnace.runtime.tasks import CallCancelled, CancellationGuard
from pinnace.runtime.tls import ReloadingCredentials, TlsFiles

_PREFERRED = ("ExternalIP", "ExternalDNS", "InternalIP")
"""Preferred types of node addresses. Simulated nodes are reachable only at their external address."""
CONNECT_TIMEOUT = 3.0
"""Seconds for the connection to a kubelet."""
MAX_MESSAGE = 16 << 20
"""Maximum size of a response in bytes. The statistics for a page of pods are smaller."""
OPTIONS: Sequence[tuple[str, int | str]] = (
    ("grpc.keepalive_time_ms", 1000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.http2.ping_timeout_ms", 2000),  # without it, gRPC waits a minute for the response, despite keepalive_timeout_ms
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.use_local_subchannel_pool", 1),
)
_REASONS = {
    Code.INVALID_ARGUMENT: "BadRequest",
    Code.NOT_FOUND: "NotFound",
    Code.PERMISSION_DENIED: "Forbidden",
    Code.FAILED_PRECONDITION: "MethodNotAllowed",  # the runtime has no logs, or cannot run commands
}
"""Reasons by the code of a kubelet's error. Other codes become InternalError.

Source: Kubernetes, apimachinery, pkg/api/errors, NewGenericServerResponse.
"""
_NAMED = ("grpc.ssl_target_name_override", SERVER_NAME)


class KubeletEndpoint(NamedTuple):
    """The address of a kubelet. `node`: one of its nodes."""

    node: str
    host: str
    port: int


class Kubelets(Protocol):
    """Calls to kubelets. All methods raise Rejected. Stream responses are encoded bytes, which the API server forwards
    unchanged."""

    def logs(self, at: KubeletEndpoint, request: LogsRequest) -> AsyncGenerator[bytes, None]: ...

    def exec(self, at: KubeletEndpoint, requests: AsyncIterator[ExecRequest]) -> AsyncGenerator[bytes, None]: ...

    def attach(self, at: KubeletEndpoint, request: AttachRequest) -> AsyncGenerator[bytes, None]: ...

    def port_forward(self, at: KubeletEndpoint, requests: AsyncIterator[PortForwardRequest]) -> AsyncGenerator[bytes, None]: ...

    async def stats(self, at: KubeletEndpoint, request: StatsRequest, timeout: float) -> StatsResponse: ...


class NoKubelets:
    """Used by a server without a client certificate for kubelets. All calls are refused."""

    async def logs(self, at: KubeletEndpoint, request: LogsRequest) -> AsyncGenerator[bytes, None]:
        raise Rejected(_no_kubelet_client())
        yield b""

    async def exec(self, at: KubeletEndpoint, requests: AsyncIterator[ExecRequest]) -> AsyncGenerator[bytes, None]:
        raise Rejected(_no_kubelet_client())
        yield b""

    async def attach(self, at: KubeletEndpoint, request: AttachRequest) -> AsyncGenerator[bytes, None]:
        raise Rejected(_no_kubelet_client())
        yield b""

    async def port_forward(
        self, at: KubeletEndpoint, requests: AsyncIterator[PortForwardRequest]
    ) -> AsyncGenerator[bytes, None]:
        raise Rejected(_no_kubelet_client())
        yield b""

    async def stats(self, at: KubeletEndpoint, request: StatsRequest, timeout: float) -> StatsResponse:
        raise Rejected(_no_kubelet_client())


def kubelet_endpoint_of(node: Node) -> KubeletEndpoint:
    """Return the endpoint of a node's kubelet. Raises Rejected if the node has none."""
    name, status = node.metadata.name, node.status
    addresses = {address.type: address.address for address in status.addresses}
    host = next((addresses[kind] for kind in _PREFERRED if kind in addresses), "")
    port = status.daemonEndpoints.kubeletEndpoint.Port
    if not port or not host:
        message = f'the kubelet of node "{name}" publishes no endpoint for logs, exec and metrics: start it with --listen'
        raise Rejected(Refusal(Code.FAILED_PRECONDITION, "NoKubeletEndpoint", message))
    return KubeletEndpoint(name, host, port)


def _no_kubelet_client() -> Refusal:
    message = "this API server has no client certificate for kubelets: set --kubelet-client-certificate"
    return Refusal(Code.FAILED_PRECONDITION, "NoKubeletClient", message)


def choose_container(pod: Pod, container: str) -> str:
    """Return the name of the requested container, or of the default container. Raises Rejected."""
    names = [item.name for item in all_containers(pod.spec)]
    if not container:
        annotated = pod.metadata.annotations.get(DEFAULT_CONTAINER_ANNOTATION, "")
        return annotated if annotated in names else pod.spec.containers[0].name
    if container not in names:
        raise _pod_refusal(
            pod, f'container "{container}" not found in pod "{pod.metadata.name}": containers: {", ".join(names)}'
        )
    return container


def check_logs_readable(pod: Pod, container: str, previous: bool) -> bool:
    """Return whether to read the logs of the attempt before the latest. Raises Rejected if there are no logs.

    While a container waits for a restart, its previous attempt is its latest.
    """
    what = f'container "{container}" in pod "{pod.metadata.name}"'
    status = _find_container_status(pod, container)
    before = status.lastState.HasField("terminated")
    if previous:
        if not before:
            raise _pod_refusal(pod, f"previous terminated {what} not found")
        return not status.state.HasField("waiting")
    if before or status.state.HasField("running") or status.state.HasField("terminated"):
        return False
    if ended(pod):
        reason = f" ({pod.status.reason})" if pod.status.reason else ""
        raise _pod_refusal(pod, f"{what} has never run: the pod is {pod.status.phase}{reason}")
    raise _pod_refusal(pod, f"{what} is waiting to start: {status.state.waiting.reason or 'ContainerCreating'}")


def check_executable(pod: Pod, container: str, action: str = "exec into") -> None:
    """Check that the container is running. Raises Rejected."""
    if ended(pod):
        raise _pod_refusal(pod, f"cannot {action} a container in a completed pod; current phase is {pod.status.phase}")
    if not _find_container_status(pod, container).state.HasField("running"):
        raise _pod_refusal(pod, f'container "{container}" in pod "{pod.metadata.name}" is not running')


def check_forwardable(pod: Pod) -> None:
    """Check that the pod is running. Raises Rejected."""
    if pod.status.phase != "Running":
        raise _pod_refusal(pod, f"unable to forward port because pod is not running. Current status={pod.status.phase}")


def _find_container_status(pod: Pod, container: str) -> ContainerStatus:
    status = pod.status
    statuses = (*status.initContainerStatuses, *status.containerStatuses, *status.ephemeralContainerStatuses)
    return next((status for status in statuses if status.name == container), ContainerStatus())


def _pod_refusal(pod: Pod, message: str) -> Rejected:
    hint = f"`kubectl describe pod {pod.metadata.name} -n {pod.metadata.namespace}` shows the state of its containers"
    return Rejected(bad_request(message, hint))


class GrpcKubelets:
    def __init__(self, tls: TlsFiles | None) -> None:
        """`tls`: client certificate and CA; None in a cluster without TLS. Raises OSError if the files cannot be read."""
        self._tls = ReloadingCredentials(tls) if tls is not None else None

    async def logs(self, at: KubeletEndpoint, request: LogsRequest) -> AsyncGenerator[bytes, None]:
        async with self._connect_kubelet(at) as channel:
            call = channel.unary_stream("/pinnace.v1.Kubelet/Logs", LogsRequest.SerializeToString)(request)
            async for response in _read_responses(call, at):
                yield response

    async def attach(self, at: KubeletEndpoint, request: AttachRequest) -> AsyncGenerator[bytes, None]:
        async with self._connect_kubelet(at) as channel:
            call = channel.unary_stream("/pinnace.v1.Kubelet/Attach", AttachRequest.SerializeToString)(request)
            async for response in _read_responses(call, at):
                yield response

    async def exec(self, at: KubeletEndpoint, requests: AsyncIterator[ExecRequest]) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._stream_both_ways(at, "Exec", requests, ExecRequest)) as responses:
            async for response in responses:
                yield response

    async def port_forward(
        self, at: KubeletEndpoint, requests: AsyncIterator[PortForwardRequest]
    ) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._stream_both_ways(at, "PortForward", requests, PortForwardRequest)) as responses:
            async for response in responses:
                yield response

    async def _stream_both_ways(
        self, at: KubeletEndpoint, method: str, requests: AsyncIterator[Message], message: type[Message]
    ) -> AsyncGenerator[bytes, None]:
        async with self._connect_kubelet(at) as channel:
            call = channel.stream_stream(f"/pinnace.v1.Kubelet/{method}", message.SerializeToString)()
            sending = asyncio.ensure_future(_send_requests(call, requests))
            try:
                async for response in _read_responses(call, at):
                    yield response
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)

    async def stats(self, at: KubeletEndpoint, request: StatsRequest, timeout: float) -> StatsResponse:
        async with self._connect_kubelet(at) as channel:
            ask = channel.unary_unary("/pinnace.v1.Kubelet/Stats", StatsRequest.SerializeToString, StatsResponse.FromString)
            with _translate_errors(at), CancellationGuard():
                response: StatsResponse = await ask(request, timeout=timeout)
            return response

    @asynccontextmanager
    async def _connect_kubelet(self, at: KubeletEndpoint) -> AsyncIterator[grpc.aio.Channel]:
        """Connect to a kubelet. The end of the context closes the connection and its calls."""
        address = f"{_bracket_ipv6(at.host)}:{at.port}"
        if self._tls is None:
            channel = grpc.aio.insecure_channel(address, options=OPTIONS)
        else:
            self._tls.reload_if_changed()
            channel = grpc.aio.secure_channel(address, self._tls.current.for_channel(), options=[*OPTIONS, _NAMED])
        try:
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT):
                    await channel.channel_ready()
            except TimeoutError:
                raise Rejected(_kubelet_unavailable(at, f"no connection within {CONNECT_TIMEOUT:.0f} s")) from None
            yield channel
        finally:
            await channel.close()


async def _read_responses(call: Any, at: KubeletEndpoint) -> AsyncIterator[bytes]:
    try:
        while True:
            with _translate_errors(at), CancellationGuard():
                response = await call.read()
            if response is grpc.aio.EOF:
                return
            yield response
    finally:
        call.cancel()


@contextmanager
def _translate_errors(at: KubeletEndpoint) -> Iterator[None]:
    """Convert the errors of a call to Rejected."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED):
            raise Rejected(_kubelet_unavailable(at, error.details() or "the kubelet closed the call")) from None
        code = Code(error.code().value[0])
        raise Rejected(Refusal(code, _REASONS.get(code, "InternalError"), error.details() or code.name)) from None
    except CallCancelled:
        raise Rejected(_kubelet_unavailable(at, "the kubelet closed the call")) from None


async def _send_requests(call: Any, requests: AsyncIterator[Message]) -> None:
    """Send the requests until the iterator ends. Errors are ignored: the reader of the responses reports them."""
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        async for request in requests:
            await grpc_stream.write_request(call, request)
        await call.done_writing()


def _kubelet_unavailable(at: KubeletEndpoint, reason: str) -> Refusal:
    return Refusal(
        Code.UNAVAILABLE,
        "KubeletUnavailable",
        f'the kubelet of node "{at.node}" at {at.host}:{at.port} is unavailable: {reason}',
    )


def _bracket_ipv6(host: str) -> str:
    with suppress(ValueError):
        if ipaddress.ip_address(host).version == 6:
            return f"[{host}]"
    return host
