"""Hooks and probes of a container that is a process: each is a task of its own, observed while it goes on.

Failures are told in Kubernetes' words, with what a command has written, cut short.
Source: https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes/
"""

import asyncio
import math
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kubelet.process import command, http
from kubelet.process.files import Plan
from kubelet.process.http import Failed
from kubelet.process.plan import instead
from kubelet.runtime import Call, CallKind, CallView, Instant, read
from pinnace.api.core_v1_pb2 import ExecAction, GRPCAction, HTTPGetAction, TCPSocketAction
from pinnace.runtime.clock import Clock

MAX_OUTPUT = 10 << 10
"""Bytes of what a command writes that are kept, as Kubernetes keeps."""


HOOKS = (CallKind.POST_START, CallKind.PRE_STOP)


@dataclass(slots=True)
class _Begun:
    view: CallView
    task: "asyncio.Task[None]"


class Calls:
    """Those of one attempt. `end` them with it."""

    def __init__(self, changed: Callable[[], None], clock: Clock) -> None:
        self._changed = changed
        self._clock = clock
        self._begun: dict[CallKind, _Begun] = {}

    @property
    def views(self) -> tuple[CallView, ...]:
        return tuple(each.view for each in self._begun.values())

    def begin(self, call: Call, plan: Plan, host: str, now: Instant) -> None:
        """`plan`: what the container runs; `host`: its pod's address."""
        if (earlier := self._begun.get(call.kind)) is not None:
            earlier.task.cancel()
        task = asyncio.get_running_loop().create_task(self._run(call, plan, host))
        self._begun[call.kind] = _Begun(CallView(call.kind, call.number, now, None, "", None), task)

    def end(self, failure: str) -> None:
        """Whatever has not ended has failed."""
        for kind, begun in self._begun.items():
            if begun.view.ended is None:
                begun.task.cancel()
                self._ended(kind, failure)

    async def _run(self, call: Call, plan: Plan, host: str) -> None:
        failure = ""
        try:
            async with asyncio.timeout(None if math.isinf(call.timeout) else call.timeout):
                await _make(call, plan, host)
        except TimeoutError:
            failure = f"timed out after {call.timeout:g} s"
        except Exception as error:  # whatever it is: a call that never ends is waited for
            failure = str(error) or type(error).__name__
        self._ended(call.kind, failure)
        self._changed()

    def _ended(self, kind: CallKind, failure: str) -> None:
        begun = self._begun[kind]
        begun.view = begun.view._replace(ended=read(self._clock), failure=failure)


async def _make(call: Call, plan: Plan, host: str) -> None:
    """Raises Failed, OSError, of which TimeoutError is one, and whatever libraries make of what they are given."""
    match call.handler:
        case ExecAction() as action:
            await _execute(instead(plan, action.command))
        case HTTPGetAction() as action:
            await _get(action, action.host or host, hook=call.kind in HOOKS)
        case TCPSocketAction() as action:
            if call.kind in HOOKS:
                raise Failed("invalid handler")
            _, writer = await http.connect(action.host or host, action.port.intVal)
            writer.close()
        case GRPCAction() as action:
            await _ask_health(action, host)
        case action:
            await asyncio.sleep(action.seconds)


async def _execute(plan: Plan) -> None:
    output, code = b"", 0
    async with aclosing(command.run(plan, None)) as responses:
        async for response in responses:
            output = (output + response.stdout + response.stderr)[:MAX_OUTPUT]
            code = response.exit.code
    if code:
        raise Failed(output.decode(errors="replace").strip() or f"command terminated with exit code {code}")


async def _get(action: HTTPGetAction, host: str, *, hook: bool) -> None:
    """Whatever is answered to a hook, it was called."""
    if hook:
        await _call(action, host)
    elif not 200 <= (status := await http.get(action, host, "probe")) < 400:
        raise Failed(f"HTTP probe failed with statuscode: {status}")


async def _call(action: HTTPGetAction, host: str) -> None:
    """Once more without TLS where the server has none, as in Kubernetes, whose hooks went over HTTP whatever they said; then
    nothing secret goes along. When that fails, too, it is the first failure that counts.
    Source: pkg/kubelet/lifecycle/handlers.go"""
    try:
        await http.get(action, host, "lifecycle")
    except http.NotTLS:
        bare = HTTPGetAction(scheme="HTTP", port=action.port, path=action.path)
        bare.httpHeaders.extend(each for each in action.httpHeaders if each.name.lower() != "authorization")
        with suppress(Failed, OSError):
            await http.get(bare, host, "lifecycle")
            return
        raise


async def _ask_health(action: GRPCAction, host: str) -> None:
    """Source: https://github.com/grpc/grpc/blob/master/doc/health-checking.md"""
    async with grpc.aio.insecure_channel(f"{host}:{action.port}", options=[("grpc.enable_http_proxy", 0)]) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=action.service))
        except grpc.aio.AioRpcError as error:
            raise Failed(f"error: health rpc failed: {error.details() or error.code().name}") from None
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        raise Failed(f'service unhealthy (responded with "{health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)}")')
