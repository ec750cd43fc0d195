"""Lifecycle hooks and probes of process containers: each call is a task.

HTTP handlers send one GET. Redirects to the same host, on any port, are followed, up to ten requests; any other redirect is the
result. Headers of the action replace the default headers, case-insensitively; an empty value removes the header. Failures have
Kubernetes' wording, with the truncated output of the command.
Source: Kubernetes, pkg/probe/http, and https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes/
"""

import asyncio
import math
import os
import ssl
from collections.abc import Callable, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple
from urllib.parse import quote, urljoin, urlsplit

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from pinnace.api.core_v1_pb2 import ExecAction, GRPCAction, HTTPGetAction, HTTPHeader, TCPSocketAction
from pinnace.kubelet.runtime.interface import CallKind, CallView, ContainerCall, Moment, read_clocks
from pinnace.kubelet.runtime.process.files import ProcessPlan
from pinnace.kubelet.runtime.process.plan import with_command
from pinnace.kubelet.runtime.process.streams import run_command
from pinnace.runtime.clock import Clock

REDIRECTS = 10
_FOLLOWED = (301, 302, 303, 307, 308)
_PORTS = {"http": 80, "https": 443}
_PLAIN = "/%:@!$&'()*+,;=~"
"""Characters of a path that are not escaped, besides letters and digits. Existing escapes are kept."""
_NOT_TLS = ("WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG")
"""Errors of OpenSSL for a plain HTTP response; they depend on its version."""
MAX_OUTPUT = 10 << 10
"""Maximum bytes of output that are kept, as in Kubernetes."""
HOOKS = (CallKind.POST_START, CallKind.PRE_STOP)


class CallFailed(Exception):
    """The call has failed. The message is the reason."""


class NotTLS(CallFailed):
    """A TLS connection got a response that is not TLS. The server may use plain HTTP."""


class _HttpTarget(NamedTuple):
    scheme: str
    host: str
    port: int
    path: str
    """Including the query."""

    @property
    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def target(self) -> str:
        """The path without the fragment, with invalid characters escaped."""
        path, mark, query = self.path.partition("#")[0].partition("?")
        return f"{quote(path, _PLAIN)}{mark}{quote(query, f'{_PLAIN}?')}"

    def towards(self, location: str) -> "_HttpTarget | None":
        """The target of a redirect. None: another host. Raises ValueError."""
        result = urlsplit(urljoin(f"{self.scheme}://{self.authority}{self.path}", location))
        if result.hostname != self.host.lower():
            return None
        if result.scheme not in _PORTS:
            raise ValueError(f"unsupported protocol scheme {result.scheme}")
        path = (result.path or "/") + (f"?{result.query}" if result.query else "")
        return _HttpTarget(result.scheme, result.hostname, result.port or _PORTS[result.scheme], path)


async def http_get(action: HTTPGetAction, host: str, agent: str) -> int:
    """Return the status code. `agent`: "probe" or another caller, for the user agent. Raises Failed and OSError."""
    place = _HttpTarget((action.scheme or "http").lower(), host, action.port.intVal, f"/{action.path.lstrip('/')}")
    for _ in range(REDIRECTS):
        try:
            status, location = await _send_request(place, action.httpHeaders, agent)
            if status not in _FOLLOWED or not location:
                return status
            there = place.towards(location)
        except ssl.SSLError as error:
            raise _error_text(error) from None
        except ValueError as error:  # a line without an end, or an invalid URL
            raise CallFailed(f"malformed HTTP response: {error}") from None
        if there is None:
            return status
        place = there
    raise CallFailed(f"stopped after {REDIRECTS} redirects")


async def open_connection(
    host: str, port: int, context: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Raises Failed, TimeoutError and ssl.SSLError."""
    try:
        return await asyncio.open_connection(host, port, ssl=context)
    except (TimeoutError, ssl.SSLError):  # the errno of an SSLError is OpenSSL's, not the system's
        raise
    except UnicodeError:  # not a valid name: a label is empty or too long
        raise CallFailed(f"dial tcp: lookup {host[:253]}: no such host") from None
    except OSError as error:
        why = f"connect: {os.strerror(error.errno).lower()}" if error.errno else str(error)
        raise CallFailed(f"dial tcp {host}:{port}: {why}") from None


def _error_text(error: ssl.SSLError) -> CallFailed:
    if error.reason in _NOT_TLS:
        return NotTLS("tls: first record does not look like a TLS handshake")
    return CallFailed(f"tls: {(error.reason or str(error)).replace('_', ' ').lower()}")


async def _send_request(place: _HttpTarget, headers: Iterable[HTTPHeader], agent: str) -> tuple[int, str]:
    """The status code and the redirect target. Raises also ValueError."""
    context = _unverified_context() if place.scheme == "https" else None
    lines = [f"GET {place.target} HTTP/1.1", *_request_headers(place, headers, agent), "", ""]
    reader, writer = await open_connection(place.host, place.port, context)
    try:
        writer.write("\r\n".join(lines).encode())
        version, _, rest = (await reader.readline()).partition(b" ")
        status = rest[:3]
        if not version.startswith(b"HTTP/") or not status.isdigit():
            raise CallFailed("malformed HTTP response")
        return int(status), await _read_location(reader) if int(status) in _FOLLOWED else ""
    finally:
        writer.close()


def _request_headers(place: _HttpTarget, given: Iterable[HTTPHeader], agent: str) -> list[str]:
    usual = {"Host": place.authority, "User-Agent": f"kube-{agent}/1.36", "Accept": "*/*", "Connection": "close"}
    own = [
        (http_header.name.title(), http_header.value)
        for http_header in given
        if http_header.value or http_header.name.lower() != "host"
    ]
    replaced = {name for name, _ in own}
    sent = [*((name, usual[name]) for name in usual if name not in replaced), *own]
    return [f"{name}: {value}" for name, value in sent if value or name not in usual]


async def _read_location(reader: asyncio.StreamReader) -> str:
    while line := (await reader.readline()).strip():
        name, _, value = line.partition(b":")
        if name.lower() == b"location":
            return value.strip().decode(errors="replace")
    return ""


@cache
def _unverified_context() -> ssl.SSLContext:
    """Does not verify certificates, as in Kubernetes. (A default context loads the machine's trusted certificates, which takes
    20 ms.)
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@dataclass(slots=True)
class _RunningCall:
    view: CallView
    task: "asyncio.Task[None]"


class AttemptCalls:
    """The calls of one attempt. Call `cancel_calls` when the attempt ends."""

    def __init__(self, changed: Callable[[], None], clock: Clock) -> None:
        self._changed = changed
        self._clock = clock
        self._begun: dict[CallKind, _RunningCall] = {}

    @property
    def call_views(self) -> tuple[CallView, ...]:
        return tuple(begun.view for begun in self._begun.values())

    def begin_call(self, call: ContainerCall, plan: ProcessPlan, host: str, now: Moment) -> None:
        """`plan`: of the container; `host`: the address of its pod."""
        if (earlier := self._begun.get(call.kind)) is not None:
            earlier.task.cancel()
        task = asyncio.get_running_loop().create_task(self._run(call, plan, host))
        self._begun[call.kind] = _RunningCall(CallView(call.kind, call.number, now, None, "", None), task)

    def cancel_calls(self, failure: str) -> None:
        """Cancel all calls; unfinished calls have failed."""
        for kind, begun in self._begun.items():
            if begun.view.ended is None:
                begun.task.cancel()
                self._mark_ended(kind, failure)

    async def _run(self, call: ContainerCall, plan: ProcessPlan, host: str) -> None:
        failure = ""
        try:
            async with asyncio.timeout(None if math.isinf(call.timeout) else call.timeout):
                await _run_handler(call, plan, host)
        except TimeoutError:
            failure = f"timed out after {call.timeout:g} s"
        except Exception as error:  # any exception: the kubelet waits for a call that never ends
            failure = str(error) or type(error).__name__
        self._mark_ended(call.kind, failure)
        self._changed()

    def _mark_ended(self, kind: CallKind, failure: str) -> None:
        begun = self._begun[kind]
        begun.view = begun.view._replace(ended=read_clocks(self._clock), failure=failure)


async def _run_handler(call: ContainerCall, plan: ProcessPlan, host: str) -> None:
    """Raises Failed, OSError (including TimeoutError), and errors of libraries for invalid values."""
    match call.handler:
        case ExecAction() as action:
            await _run_exec(with_command(plan, action.command))
        case HTTPGetAction() as action:
            await _run_http_hook(action, action.host or host, hook=call.kind in HOOKS)
        case TCPSocketAction() as action:
            if call.kind in HOOKS:
                raise CallFailed("invalid handler")
            _, writer = await open_connection(action.host or host, action.port.intVal)
            writer.close()
        case GRPCAction() as action:
            await _check_grpc_health(action, host)
        case action:
            await asyncio.sleep(action.seconds)


async def _run_exec(plan: ProcessPlan) -> None:
    output, code = b"", 0
    async with aclosing(run_command(plan, None)) as responses:
        async for response in responses:
            output = (output + response.stdout + response.stderr)[:MAX_OUTPUT]
            code = response.exit.code
    if code:
        raise CallFailed(output.decode(errors="replace").strip() or f"command terminated with exit code {code}")


async def _run_http_hook(action: HTTPGetAction, host: str, *, hook: bool) -> None:
    """A postStart or preStop HTTP hook. Any response is a success."""
    if hook:
        await _get_with_http_fallback(action, host)
    elif not 200 <= (status := await http_get(action, host, "probe")) < 400:
        raise CallFailed(f"HTTP probe failed with statuscode: {status}")


async def _get_with_http_fallback(action: HTTPGetAction, host: str) -> None:
    """Repeat an HTTPS call over HTTP if the server does not use TLS, as in Kubernetes, whose hooks once ignored the scheme.
    The Authorization header is then omitted. If the second call also fails, the first failure is reported.
    Source: pkg/kubelet/lifecycle/handlers.go
    """
    try:
        await http_get(action, host, "lifecycle")
    except NotTLS:
        bare = HTTPGetAction(scheme="HTTP", port=action.port, path=action.path)
        bare.httpHeaders.extend(
            http_header for http_header in action.httpHeaders if http_header.name.lower() != "authorization"
        )
        with suppress(CallFailed, OSError):
            await http_get(bare, host, "lifecycle")
            return
        raise


async def _check_grpc_health(action: GRPCAction, host: str) -> None:
    """Source: https://github.com/grpc/grpc/blob/master/doc/health-checking.md"""
    async with grpc.aio.insecure_channel(f"{host}:{action.port}", options=[("grpc.enable_http_proxy", 0)]) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=action.service))
        except grpc.aio.AioRpcError as error:
            raise CallFailed(f"error: health rpc failed: {error.details() or error.code().name}") from None
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        raise CallFailed(
            f'service unhealthy (responded with "{health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)}")'
        )
