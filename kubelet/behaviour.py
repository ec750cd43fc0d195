"""What the containers of a pod are declared to do, by annotations of the pod: the script of the fake runtime.

Seconds and numbers. An annotation is of all main containers of the pod and its sidecars; with a container's name behind it,
`pinnace.io/run-seconds.NAME`, of that one alone, and that wins. An init container that is no sidecar ends at once, with code 0,
unless its own annotation says something else.

    start-seconds            from being created to running                    (default: that of the process)
    run-seconds              from running to exiting by itself                (default: it runs for ever)
    exit-code                the code of that exit                            (default: 0)
    stop-seconds             from being asked to stop to exiting, with code 0 (default: 0)
    started-after-seconds    before, startup probes fail; from running        (default: 0)
    ready-after-seconds      before, readiness probes fail; from running      (default: 0)
    unready-after-seconds    from then on, readiness probes fail              (default: never)
    unhealthy-after-seconds  from then on, liveness probes fail               (default: never)
    probe-seconds            that a probe takes                               (default: 0)
    post-start-seconds       that the postStart hook takes                    (default: 0)
    pre-stop-seconds         that the preStop hook takes                      (default: 0)
    post-start-exit-code     the outcome of that hook; 0 is success           (default: 0)
    pre-stop-exit-code       the outcome of that hook; 0 is success           (default: 0)
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from kubelet.runtime import Unsupported
from pinnace.api.core_v1_pb2 import Pod

PREFIX = "pinnace.io/"
N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Of one container; see the top of the module. Seconds, and exit codes."""

    start_seconds: float = 0.0
    run_seconds: float | None = None
    exit_code: int = 0
    stop_seconds: float = 0.0
    started_after_seconds: float = 0.0
    ready_after_seconds: float = 0.0
    unready_after_seconds: float = math.inf
    unhealthy_after_seconds: float = math.inf
    probe_seconds: float = 0.0
    post_start_seconds: float = 0.0
    pre_stop_seconds: float = 0.0
    post_start_exit_code: int = 0
    pre_stop_exit_code: int = 0


_FIELDS = {PREFIX + field.name.replace("_", "-"): field.name for field in fields(Behaviour)}
"""Annotation -> field of Behaviour."""
_OF_INIT = frozenset({"start_seconds", "stop_seconds"})
"""What is said of all containers and goes for init containers, too."""


class Script:
    """What the containers of one pod do."""

    __slots__ = ("_all", "_named")

    def __init__(self, everybody: Behaviour, named: Mapping[str, Behaviour]) -> None:
        self._all = everybody
        self._named = named

    def of(self, container: str) -> Behaviour:
        return self._named.get(container, self._all)


def script(pod: Pod, default: Behaviour) -> Script | None:
    """What the annotations of a pod say; None: nothing. Raises Unsupported for a value that makes no sense."""
    everybody: dict[str, Any] = {}
    single: dict[str, dict[str, Any]] = {}
    for key, text in pod.metadata.annotations.items():
        if key.startswith(PREFIX):
            what, _, name = key.partition(".io/")[2].partition(".")
            if field := _FIELDS.get(PREFIX + what):
                (single.setdefault(name, {}) if name else everybody)[field] = _value(key, field, text)
    behaviour = replace(default, **everybody) if everybody else default
    named = {name: replace(behaviour, **declared) for name, declared in single.items()}
    for container in pod.spec.initContainers:
        if container.restartPolicy != "Always":
            own = {field: value for field, value in everybody.items() if field in _OF_INIT} | single.get(container.name, {})
            plain = Behaviour(start_seconds=default.start_seconds, stop_seconds=default.stop_seconds, run_seconds=0.0)
            named[container.name] = replace(plain, **own)
    return Script(behaviour, named) if everybody or named else None


def seconds(annotation: str, text: str) -> float:
    """Raises Unsupported."""
    return _number(annotation, text, float, math.inf, "seconds, such as 1.5")


def _value(annotation: str, field: str, text: str) -> float | int:
    if field.endswith("code"):
        return _number(annotation, text, int, 256, "a number from 0 to 255")
    return seconds(annotation, text)


def _number(annotation: str, text: str, kind: Callable[[str], N], limit: float, words: str) -> N:
    try:
        value = kind(text)
    except ValueError:
        pass
    else:
        if 0 <= value < limit:
            return value
    raise Unsupported(f'annotation {annotation}: "{text}" is not {words}')
