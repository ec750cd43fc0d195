"""The behavior of simulated containers: annotations of their pod, and stages in YAML.

Annotations hold seconds and numbers. An annotation applies to all main containers of the pod and its sidecars; with a
container's name behind it, as in `pinnace.io/run-seconds.NAME`, to that container alone, and that takes precedence. An
init container that is no sidecar exits at once with code 0, unless an annotation with its name says something else.

    start-seconds            from being created to running                    (default: that of the process)
    run-seconds              from running to exiting by itself                (default: it never exits)
    exit-code                the code of that exit                            (default: 0)
    stop-seconds             from being asked to stop to exiting, with code 0 (default: 0)
    started-after-seconds    from running; until then startup probes fail     (default: 0)
    ready-after-seconds      from running; until then readiness probes fail   (default: 0)
    unready-after-seconds    from running; then readiness probes fail         (default: never)
    unhealthy-after-seconds  from running; then liveness probes fail          (default: never)
    probe-seconds            the duration of a probe                          (default: 0)
    post-start-seconds       the duration of the postStart hook               (default: 0)
    pre-stop-seconds         the duration of the preStop hook                 (default: 0)
    post-start-exit-code     the exit code of that hook; 0 is success         (default: 0)
    pre-stop-exit-code       the exit code of that hook; 0 is success         (default: 0)

Stages follow KWOK (https://kwok.sigs.k8s.io/docs/user/stages-configuration/): a stage selects pods and applies after a
delay with jitter; of several stages of one kind one is chosen by weight. Unlike in KWOK, `next` declares what a container
does, not a status template: statuses follow from it. Fields of KWOK that are not supported are errors. All errors of a
file are reported at once, with file, line and field.

    text --parse--> Stages --behaviour(pod)--> Behaviour, which the pod's annotations override

A stage can have `logs` instead of `next`: the lines that containers write (kubelet.runtime.simulated_log).

The random choices are seeded with the pod's uid, so a restarted kubelet makes the same ones.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.documents import DocumentError, line_of
from pinnace.api.documents import parse as documents
from pinnace.kubelet.runtime.interface import UnsupportedPod
from pinnace.kubelet.runtime.simulated_log import SimulatedLogLine, validate_log_text

PREFIX = "pinnace.io/"
N = TypeVar("N", int, float)
_OF_INIT = frozenset({"start_seconds", "stop_seconds"})
"""Fields that apply to init containers, too."""
SETS = ("fast", "realistic", "chaos")
"""The predefined sets."""
VERSIONS = ("kwok.x-k8s.io/v1alpha1", "pinnace.io/v1alpha1")
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_MOST_MILLISECONDS = 10**10
_NEVER = "never"
MAX_LOGS = 32
"""Lines in the `logs` of a stage."""
LEAST_INTERVAL = 100
"""Milliseconds between two lines."""
_SHOWN = 100
"""Maximum length of a field's name in messages."""
_KEYED = re.compile(r"\.metadata\.(labels|annotations)\[\"([^\"]+)\"\]")
_READERS: Mapping[str, Callable[[Pod], Sequence[str]]] = {
    ".metadata.name": lambda pod: [pod.metadata.name],
    ".metadata.namespace": lambda pod: [pod.metadata.namespace],
    ".metadata.ownerReferences.[].kind": lambda pod: [owner.kind for owner in pod.metadata.ownerReferences],
    ".spec.nodeName": lambda pod: [pod.spec.nodeName],
    ".spec.restartPolicy": lambda pod: [pod.spec.restartPolicy],
    ".spec.priorityClassName": lambda pod: [pod.spec.priorityClassName] if pod.spec.priorityClassName else [],
    ".spec.schedulerName": lambda pod: [pod.spec.schedulerName],
}
"""Keys of matchExpressions, besides labels and annotations."""
Where = tuple[str | int, ...]
_MISSING = object()
"""Placeholder for a missing required field that has been reported."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The behavior of one container: seconds and exit codes. See the module's docstring."""

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


class PodBehaviour:
    """The behavior of the containers of one pod."""

    __slots__ = ("_all", "_named")

    def __init__(self, common: Behaviour, named: Mapping[str, Behaviour]) -> None:
        self._all = common
        self._named = named

    def behaviour_of(self, container: str) -> Behaviour:
        return self._named.get(container, self._all)


def annotated_behaviour(pod: Pod, default: Behaviour) -> PodBehaviour | None:
    """The behavior in the annotations of a pod. None: there are none. Raises UnsupportedPod for invalid values."""
    common: dict[str, Any] = {}
    single: dict[str, dict[str, Any]] = {}
    for key, text in pod.metadata.annotations.items():
        if key.startswith(PREFIX):
            what, _, name = key.partition(".io/")[2].partition(".")
            if field := _FIELDS.get(PREFIX + what):
                (single.setdefault(name, {}) if name else common)[field] = _read_annotation_value(key, field, text)
    behaviour = replace(default, **common) if common else default
    named = {name: replace(behaviour, **declared) for name, declared in single.items()}
    for container in pod.spec.initContainers:
        if container.restartPolicy != "Always":
            own = {field: value for field, value in common.items() if field in _OF_INIT} | single.get(container.name, {})
            plain = Behaviour(start_seconds=default.start_seconds, stop_seconds=default.stop_seconds, run_seconds=0.0)
            named[container.name] = replace(plain, **own)
    return PodBehaviour(behaviour, named) if common or named else None


def parse_seconds(annotation: str, text: str) -> float:
    """Raises UnsupportedPod."""
    return _read_number(annotation, text, float, math.inf, "seconds, such as 1.5")


def _read_annotation_value(annotation: str, field: str, text: str) -> float | int:
    if field.endswith("code"):
        return _read_number(annotation, text, int, 256, "a number from 0 to 255")
    return parse_seconds(annotation, text)


def _read_number(annotation: str, text: str, kind: Callable[[str], N], limit: float, words: str) -> N:
    try:
        value = kind(text)
    except ValueError:
        pass
    else:
        if 0 <= value < limit:
            return value
    raise UnsupportedPod(f'annotation {annotation}: "{text}" is not {words}')


class StageTransition(StrEnum):
    """The next state of a container. The delay counts from creation for `start`, from SIGTERM for `stop`, and from running for
    the others.
    """

    START = "start"
    EXIT = "exit"
    STARTED = "started"
    READY = "ready"
    UNREADY = "unready"
    UNHEALTHY = "unhealthy"
    STOP = "stop"


_SECONDS = {
    StageTransition.START: "start_seconds",
    StageTransition.EXIT: "run_seconds",
    StageTransition.STARTED: "started_after_seconds",
    StageTransition.READY: "ready_after_seconds",
    StageTransition.UNREADY: "unready_after_seconds",
    StageTransition.UNHEALTHY: "unhealthy_after_seconds",
    StageTransition.STOP: "stop_seconds",
}
"""The field of Behaviour for the delay."""


@dataclass(frozen=True, slots=True)
class SelectorExpression:
    """`read`: returns the values in a pod."""

    read: Callable[[Pod], Sequence[str]]
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, pod: Pod) -> bool:
        result = self.read(pod)
        match self.operator:
            case "Exists":
                return bool(result)
            case "DoesNotExist":
                return not result
            case "In":
                return not self.values.isdisjoint(result)
            case _:
                return self.values.isdisjoint(result)


@dataclass(frozen=True, slots=True)
class StageSelector:
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    expressions: Sequence[SelectorExpression] = ()

    def matches(self, pod: Pod) -> bool:
        metadata = pod.metadata
        return (
            all(metadata.labels.get(key) == value for key, value in self.labels.items())
            and all(metadata.annotations.get(key) == value for key, value in self.annotations.items())
            and all(expression.matches(pod) for expression in self.expressions)
        )


@dataclass(frozen=True, slots=True)
class Stage:
    name: str
    what: StageTransition | None
    """None: the stage has `logs`."""
    selector: StageSelector = field(default_factory=StageSelector)
    weight: int = 0
    delay: tuple[float, float] = (0.0, 0.0)
    """Minimum and maximum, in seconds."""
    code: int = 0
    """The code of an exit."""
    never: bool = False
    """The state is not reached: an alternative to other stages."""
    logs: Sequence[SimulatedLogLine] = ()


@dataclass(frozen=True, slots=True)
class Stages:
    stages: Sequence[Stage]

    def behaviour_of(self, pod: Pod, default: Behaviour) -> Behaviour:
        """The behavior of the containers of this pod. Equal to the default if no stage matches."""
        matching = [stage for stage in self.stages if stage.selector.matches(pod)]
        if not matching:
            return default
        chance = Random(pod.metadata.uid)
        fields: dict[str, float | int] = {}
        for transition in StageTransition:
            if candidates := [stage for stage in matching if stage.what is transition]:
                chosen = _choose_by_weight(candidates, chance)
                seconds = chance.uniform(*chosen.delay)
                if not chosen.never:
                    fields[_SECONDS[transition]] = seconds
                    if transition is StageTransition.EXIT:
                        fields["exit_code"] = chosen.code
        return replace(default, **fields)  # type: ignore[arg-type]  # each has the type of its field

    def log_lines(self, pod: Pod, container: str) -> Sequence[SimulatedLogLine] | None:
        """The log of a container. None: no stage declares it."""
        matching = [stage for stage in self.stages if stage.what is None and stage.selector.matches(pod)]
        if not matching:
            return None
        chosen = _choose_by_weight(matching, Random(pod.metadata.uid))
        lines = [line for line in chosen.logs if line.container in ("", container)]
        return lines or None


def _choose_by_weight(candidates: Sequence[Stage], chance: Random) -> Stage:
    """Select by weight; without weights, all stages are equally likely."""
    weights = [stage.weight for stage in candidates]
    return chance.choices(candidates, weights if any(weights) else None)[0]


class StagesError(Exception):
    """The text is invalid. The message has one line per error: "source:line: field: error"."""


def load_stages(name: str) -> Stages:
    """Read a set by its name, or a file. Raises StagesError."""
    if name in SETS:
        return parse_stages(files("pinnace.kubelet.runtime").joinpath("sets", f"{name}.yaml").read_text("utf-8"), name)
    try:
        return parse_stages(Path(name).read_text("utf-8"), name)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise StagesError(f"{name}: {reason}; the sets are {', '.join(SETS)}") from None


def parse_stages(text: str, source: str) -> Stages:
    """Raises StagesError."""
    problems: list[tuple[int, str]] = []
    stages: list[Stage] = []
    try:
        for document in documents(text):
            problems.extend(document.mistakes)
            if document.data is not None:
                reader = _StageReader()
                stages.append(reader.stage(document.data))
                problems += [
                    (line_of(document.data, path, document.line), f"{_format_path(path)}: {message}" if path else message)
                    for path, message in reader.problems
                ]
    except DocumentError as error:
        problems.append((error.line, str(error)))
    if not problems and not stages:
        problems.append((1, "no stages"))
    if problems:
        raise StagesError("\n".join(f"{source}:{line}: {message}" for line, message in sorted(problems)))
    return Stages(stages)


def _format_path(path: Where) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step[:_SHOWN]}" for step in path).removeprefix(".")


class _StageReader:
    """Parses one document. The result of an invalid document is not used."""

    def __init__(self) -> None:
        self.problems: list[tuple[Where, str]] = []

    def stage(self, data: Any) -> Stage:
        whole = self._read_fields(data, (), ("apiVersion", "kind", "metadata", "spec"), needed=("apiVersion", "kind", "spec"))
        self._check_choice(whole, ("apiVersion",), VERSIONS)
        self._check_choice(whole, ("kind",), ("Stage",))
        metadata = self._read_fields(whole.get("metadata", {}), ("metadata",), ("name",))
        spec = self._read_fields(
            whole.get("spec", _MISSING),
            ("spec",),
            ("resourceRef", "selector", "weight", "delay", "next", "logs"),
            needed=("resourceRef",),
        )
        reference = self._read_fields(
            spec.get("resourceRef", _MISSING), ("spec", "resourceRef"), ("apiGroup", "kind"), needed=("kind",)
        )
        self._check_choice(reference, ("spec", "resourceRef", "kind"), ("Pod",))
        self._check_choice(reference, ("spec", "resourceRef", "apiGroup"), ("v1", ""))
        what: StageTransition | None = None
        code, never = 0, False
        if "logs" not in spec:
            what, code, never = self._read_transition(spec.get("next", _MISSING), ("spec", "next"))
        for name in ("next", "delay"):
            if "logs" in spec and name in spec:
                self._add_problem(("spec", name), "cannot be combined with logs")
        if spec and not {"next", "logs"} & spec.keys():
            self._add_problem(("spec", "next"), "is missing; a stage has next or logs")
        return Stage(
            str(metadata.get("name", "")),
            what,
            self._read_selector(spec.get("selector", {}), ("spec", "selector")),
            self._read_number(spec.get("weight", 0), ("spec", "weight"), 10**6),
            self._read_delay(spec.get("delay", {}), ("spec", "delay")),
            code,
            never,
            self._read_logs(spec["logs"], ("spec", "logs")) if "logs" in spec else (),
        )

    def _read_logs(self, data: Any, at: Where) -> Sequence[SimulatedLogLine]:
        if not isinstance(data, list) or not 0 < len(data) <= MAX_LOGS:
            self._add_problem(at, f"expected a list of 1 to {MAX_LOGS} lines")
            return ()
        return [self._log_line(each, (*at, index)) for index, each in enumerate(data)]

    def _log_line(self, data: Any, at: Where) -> SimulatedLogLine:
        """`text`, and for a repeated line its interval."""
        result = self._read_fields(
            data, at, ("text", "intervalMilliseconds", "jitterMilliseconds", "container"), needed=("text",)
        )
        text, container = str(result.get("text", "")), str(result.get("container", ""))
        if "text" in result and (problem := validate_log_text(text)):
            self._add_problem((*at, "text"), problem)
        interval = self._read_number(result.get("intervalMilliseconds", 0), (*at, "intervalMilliseconds"), _MOST_MILLISECONDS)
        jitter = self._read_number(result.get("jitterMilliseconds", 0), (*at, "jitterMilliseconds"), interval)
        if "intervalMilliseconds" in result and interval < LEAST_INTERVAL:
            self._add_problem((*at, "intervalMilliseconds"), f"expected at least {LEAST_INTERVAL}")
        return SimulatedLogLine(text, interval / 1000, jitter / 1000, container)

    def _read_transition(self, data: Any, at: Where) -> tuple[StageTransition, int, bool]:
        """Exactly one thing: `start: {}`, `exit: {code: 1}`, or `exit: never`."""
        result = self._read_fields(data, at, tuple(StageTransition))
        if len(result) != 1:
            if data is not _MISSING:
                self._add_problem(at, f"expected exactly one of {', '.join(StageTransition)}")
            return StageTransition.START, 0, False
        ((name, value),) = result.items()
        transition = StageTransition(name)
        if value == _NEVER:
            return transition, 0, True
        details = self._read_fields(
            value if value is not None else {}, (*at, name), ("code",) if transition is StageTransition.EXIT else ()
        )
        return transition, self._read_number(details.get("code", 0), (*at, name, "code"), 255), False

    def _read_delay(self, data: Any, at: Where) -> tuple[float, float]:
        result = self._read_fields(data, at, ("durationMilliseconds", "jitterDurationMilliseconds"))
        least = self._read_number(result.get("durationMilliseconds", 0), (*at, "durationMilliseconds"), _MOST_MILLISECONDS)
        most = self._read_number(
            result.get("jitterDurationMilliseconds", least), (*at, "jitterDurationMilliseconds"), _MOST_MILLISECONDS
        )
        if most < least:
            self._add_problem((*at, "jitterDurationMilliseconds"), f"{most} is less than durationMilliseconds, {least}")
        return least / 1000, most / 1000

    def _read_selector(self, data: Any, at: Where) -> StageSelector:
        result = self._read_fields(data, at, ("matchLabels", "matchAnnotations", "matchExpressions"))
        raw = result.get("matchExpressions", [])
        if not isinstance(raw, list):
            self._add_problem((*at, "matchExpressions"), "expected a list")
            raw = []
        expressions = [self._read_expression(each, (*at, "matchExpressions", index)) for index, each in enumerate(raw)]
        return StageSelector(
            self._read_texts(result.get("matchLabels", {}), (*at, "matchLabels")),
            self._read_texts(result.get("matchAnnotations", {}), (*at, "matchAnnotations")),
            tuple(expression for expression in expressions if expression is not None),
        )

    def _read_expression(self, data: Any, at: Where) -> SelectorExpression | None:
        before = len(self.problems)
        result = self._read_fields(data, at, ("key", "operator", "values"), needed=("key", "operator"))
        self._check_choice(result, (*at, "operator"), OPERATORS)
        values = result.get("values", [])
        if not isinstance(values, list) or any(not isinstance(value, str) for value in values):
            self._add_problem((*at, "values"), "expected a list of strings")
        elif bool(values) != (result.get("operator") in ("In", "NotIn")):
            self._add_problem((*at, "values"), "required for In and NotIn, and invalid for other operators")
        read = _field_reader(str(result.get("key", "")))
        if read is None:
            some = '.metadata.labels["KEY"], .metadata.annotations["KEY"]'
            self._add_problem((*at, "key"), f"not supported; expected {some}, {', '.join(_READERS)}")
        if read is None or len(self.problems) > before:
            return None
        return SelectorExpression(read, result["operator"], frozenset(values))

    def _read_fields(self, data: Any, at: Where, allowed: Sequence[str], *, needed: Sequence[str] = ()) -> Mapping[str, Any]:
        """Those that are known."""
        if data is _MISSING:
            return {}
        if not isinstance(data, dict):
            self._add_problem(at, f"expected fields ({', '.join(allowed)})" if allowed else "expected {}")
            return {}
        for name in data:
            if name not in allowed:
                there = f"there are {', '.join(allowed)}" if allowed else "there are no fields here"
                self._add_problem((*at, name), f"not supported; {there}")
        for name in needed:
            if name not in data:
                self._add_problem((*at, name), "is missing")
        return {name: value for name, value in data.items() if name in allowed}

    def _read_texts(self, data: Any, at: Where) -> Mapping[str, str]:
        if not isinstance(data, dict) or any(not isinstance(value, str) for value in data.values()):
            self._add_problem(at, "expected a map of strings")
            return {}
        return data

    def _read_number(self, value: Any, at: Where, most: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            self._add_problem(at, f"expected a whole number from 0 to {most}")
            return 0
        return value

    def _check_choice(self, data: Mapping[str, Any], at: Where, allowed: Sequence[str]) -> None:
        """The last step of the path, if it is present, must have one of these values."""
        name = at[-1]
        if name in data and data[str(name)] not in allowed:
            self._add_problem(
                at, f'"{data[str(name)]}" is not supported; expected {" or ".join(item for item in allowed if item)}'
            )

    def _add_problem(self, at: Where, message: str) -> None:
        self.problems.append((at, message))


def _field_reader(key: str) -> Callable[[Pod], Sequence[str]] | None:
    """None: not found."""
    if (match := _KEYED.fullmatch(key)) is None:
        return _READERS.get(key)
    kind, name = match.groups()

    def read(pod: Pod) -> Sequence[str]:
        among = pod.metadata.labels if kind == "labels" else pod.metadata.annotations
        return [among[name]] if name in among else []

    return read
