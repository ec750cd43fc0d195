"""Probes and lifecycle hooks: what a container's kubelet calls."""

from apiserver.registry.validation.addresses import validate_port, validate_port_or_name
from apiserver.registry.validation.text import validate_no_null
from apiserver.registry.validation.violations import NEGATIVE, forbidden, invalid, required, unsupported
from pinnace.api import names
from pinnace.api.codec import says_more
from pinnace.api.core_v1_pb2 import (
    Container,
    HTTPGetAction,
    Lifecycle,
    LifecycleHandler,
    Probe,
    ProbeHandler,
)
from pinnace.api.status import Violation

_SCHEMES = ("HTTP", "HTTPS")
_COUNTS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
HOOKS = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")


def validate_hooks(container: Container, grace: int, path: str, out: list[Violation]) -> None:
    """`grace`: terminationGracePeriodSeconds of the pod."""
    if container.HasField("lifecycle"):
        _validate_lifecycle(container.lifecycle, grace, f"{path}.lifecycle", out)
    if container.HasField("livenessProbe"):
        _validate_probe(container.livenessProbe, f"{path}.livenessProbe", out)
        _validate_single_success(container.livenessProbe, f"{path}.livenessProbe", out)
    if container.HasField("readinessProbe"):
        probe = container.readinessProbe
        _validate_probe(probe, f"{path}.readinessProbe", out)
        if probe.HasField("terminationGracePeriodSeconds"):
            where = f"{path}.readinessProbe.terminationGracePeriodSeconds"
            out.append(invalid(where, probe.terminationGracePeriodSeconds, "must not be set for readinessProbes"))
    if container.HasField("startupProbe"):
        _validate_probe(container.startupProbe, f"{path}.startupProbe", out)
        _validate_single_success(container.startupProbe, f"{path}.startupProbe", out)


def forbid_hooks(container: Container, detail: str, path: str, out: list[Violation]) -> None:
    out.extend(forbidden(f"{path}.{field}", detail) for field in HOOKS if container.HasField(field))


def _validate_lifecycle(lifecycle: Lifecycle, grace: int, path: str, out: list[Violation]) -> None:
    if lifecycle.HasField("postStart"):
        _validate_handler(lifecycle.postStart, f"{path}.postStart", out)
        _validate_sleep(lifecycle.postStart, grace, f"{path}.postStart.sleep", out)
    if lifecycle.HasField("preStop"):
        _validate_handler(lifecycle.preStop, f"{path}.preStop", out)
        _validate_sleep(lifecycle.preStop, grace, f"{path}.preStop.sleep", out)


def _validate_sleep(handler: LifecycleHandler, grace: int, path: str, out: list[Violation]) -> None:
    if handler.HasField("sleep") and not 0 <= handler.sleep.seconds <= max(0, grace):
        detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
        out.append(invalid(path, handler.sleep.seconds, detail))


def _validate_probe(probe: Probe, path: str, out: list[Violation]) -> None:
    _validate_handler(probe.handler, path, out)
    for field in _COUNTS:
        value = getattr(probe, field)
        if value < 0:
            out.append(invalid(f"{path}.{field}", value, NEGATIVE))
    if probe.HasField("terminationGracePeriodSeconds") and probe.terminationGracePeriodSeconds <= 0:
        out.append(
            invalid(f"{path}.terminationGracePeriodSeconds", probe.terminationGracePeriodSeconds, "must be greater than 0")
        )


def _validate_single_success(probe: Probe, path: str, out: list[Violation]) -> None:
    if probe.successThreshold != 1:
        out.append(invalid(f"{path}.successThreshold", probe.successThreshold, "must be 1"))


def _validate_handler(handler: ProbeHandler | LifecycleHandler, path: str, out: list[Violation]) -> None:
    first, *more = [field.name for field, _ in handler.ListFields()] or [""]
    out.extend(forbidden(f"{path}.{name}", "may not specify more than 1 handler type") for name in more)
    match first:
        case "":
            if not says_more(handler):
                out.append(required(path, "must specify a handler type"))
        case "exec" if not handler.exec.command:
            out.append(required(f"{path}.exec.command"))
        case "exec":
            for index, word in enumerate(handler.exec.command):
                validate_no_null(word, f"{path}.exec.command[{index}]", out)
        case "httpGet":
            _validate_http(handler.httpGet, f"{path}.httpGet", out)
        case "tcpSocket":
            validate_port_or_name(handler.tcpSocket.port, f"{path}.tcpSocket.port", out)
        case "grpc" if isinstance(handler, ProbeHandler):
            validate_port(handler.grpc.port, f"{path}.grpc.port", out)


def _validate_http(action: HTTPGetAction, path: str, out: list[Violation]) -> None:
    validate_port_or_name(action.port, f"{path}.port", out)
    if action.scheme not in _SCHEMES:
        out.append(unsupported(f"{path}.scheme", action.scheme, _SCHEMES))
    for header in action.httpHeaders:
        out.extend(invalid(f"{path}.httpHeaders", header.name, problem) for problem in names.http_header(header.name))
