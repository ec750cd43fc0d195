"""From YAML to Stages. Everything that is wrong is told at once, with file, line and field."""

import re
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from kubelet.stages.model import Expression, Selector, Stage, Stages, What
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.documents import DocumentError, line_of
from pinnace.api.documents import parse as documents

SETS = ("fast", "realistic", "chaos")
"""Those that come with the package."""
VERSIONS = ("kwok.x-k8s.io/v1alpha1", "pinnace.io/v1alpha1")
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_MOST_MILLISECONDS = 10**10
_NEVER = "never"
_SHOWN = 100
"""Characters of a field's name that are told."""
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
"""What matchExpressions may ask of a pod, beside its labels and annotations."""

Where = tuple[str | int, ...]
_MISSING = object()
"""In the place of a field that is needed, and of which it has been told that it is missing."""


class StagesError(Exception):
    """The text cannot be used. One line for each thing that is wrong, "source:line: field: what"."""


def load(name: str) -> Stages:
    """A set by its name, or a file. Raises StagesError."""
    if name in SETS:
        return parse(files("kubelet.stages").joinpath("sets", f"{name}.yaml").read_text("utf-8"), name)
    try:
        return parse(Path(name).read_text("utf-8"), name)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text in UTF-8"
        raise StagesError(f"{name}: {reason}; the sets are {', '.join(SETS)}") from None


def parse(text: str, source: str) -> Stages:
    """Raises StagesError."""
    problems: list[tuple[int, str]] = []
    stages: list[Stage] = []
    try:
        for document in documents(text):
            problems.extend(document.mistakes)
            if document.data is not None:
                reader = _Reader()
                stages.append(reader.stage(document.data))
                problems += [
                    (line_of(document.data, path, document.line), f"{_dotted(path)}: {message}" if path else message)
                    for path, message in reader.problems
                ]
    except DocumentError as error:
        problems.append((error.line, str(error)))
    if not problems and not stages:
        problems.append((1, "no stages"))
    if problems:
        raise StagesError("\n".join(f"{source}:{line}: {message}" for line, message in sorted(problems)))
    return Stages(stages)


def _dotted(path: Where) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step[:_SHOWN]}" for step in path).removeprefix(".")


class _Reader:
    """One document. What it makes of one with problems is of no use."""

    def __init__(self) -> None:
        self.problems: list[tuple[Where, str]] = []

    def stage(self, data: Any) -> Stage:
        whole = self._fields(data, (), ("apiVersion", "kind", "metadata", "spec"), needed=("apiVersion", "kind", "spec"))
        self._among(whole, ("apiVersion",), VERSIONS)
        self._among(whole, ("kind",), ("Stage",))
        metadata = self._fields(whole.get("metadata", {}), ("metadata",), ("name",))
        spec = self._fields(
            whole.get("spec", _MISSING),
            ("spec",),
            ("resourceRef", "selector", "weight", "delay", "next"),
            needed=("resourceRef", "next"),
        )
        reference = self._fields(
            spec.get("resourceRef", _MISSING), ("spec", "resourceRef"), ("apiGroup", "kind"), needed=("kind",)
        )
        self._among(reference, ("spec", "resourceRef", "kind"), ("Pod",))
        self._among(reference, ("spec", "resourceRef", "apiGroup"), ("v1", ""))
        what, code, never = self._next(spec.get("next", _MISSING), ("spec", "next"))
        return Stage(
            str(metadata.get("name", "")),
            what,
            self._selector(spec.get("selector", {}), ("spec", "selector")),
            self._number(spec.get("weight", 0), ("spec", "weight"), 10**6),
            self._delay(spec.get("delay", {}), ("spec", "delay")),
            code,
            never,
        )

    def _next(self, data: Any, at: Where) -> tuple[What, int, bool]:
        """Exactly one thing: `start: {}`, `exit: {code: 1}`, or `exit: never`."""
        found = self._fields(data, at, tuple(What))
        if len(found) != 1:
            if data is not _MISSING:
                self._problem(at, f"expected exactly one of {', '.join(What)}")
            return What.START, 0, False
        ((name, value),) = found.items()
        what = What(name)
        if value == _NEVER:
            return what, 0, True
        details = self._fields(value if value is not None else {}, (*at, name), ("code",) if what is What.EXIT else ())
        return what, self._number(details.get("code", 0), (*at, name, "code"), 255), False

    def _delay(self, data: Any, at: Where) -> tuple[float, float]:
        found = self._fields(data, at, ("durationMilliseconds", "jitterDurationMilliseconds"))
        least = self._number(found.get("durationMilliseconds", 0), (*at, "durationMilliseconds"), _MOST_MILLISECONDS)
        most = self._number(
            found.get("jitterDurationMilliseconds", least), (*at, "jitterDurationMilliseconds"), _MOST_MILLISECONDS
        )
        if most < least:
            self._problem((*at, "jitterDurationMilliseconds"), f"{most} is less than durationMilliseconds, {least}")
        return least / 1000, most / 1000

    def _selector(self, data: Any, at: Where) -> Selector:
        found = self._fields(data, at, ("matchLabels", "matchAnnotations", "matchExpressions"))
        raw = found.get("matchExpressions", [])
        if not isinstance(raw, list):
            self._problem((*at, "matchExpressions"), "expected a list")
            raw = []
        expressions = [self._expression(each, (*at, "matchExpressions", index)) for index, each in enumerate(raw)]
        return Selector(
            self._texts(found.get("matchLabels", {}), (*at, "matchLabels")),
            self._texts(found.get("matchAnnotations", {}), (*at, "matchAnnotations")),
            tuple(each for each in expressions if each is not None),
        )

    def _expression(self, data: Any, at: Where) -> Expression | None:
        before = len(self.problems)
        found = self._fields(data, at, ("key", "operator", "values"), needed=("key", "operator"))
        self._among(found, (*at, "operator"), OPERATORS)
        values = found.get("values", [])
        if not isinstance(values, list) or any(not isinstance(value, str) for value in values):
            self._problem((*at, "values"), "expected a list of texts")
        elif bool(values) != (found.get("operator") in ("In", "NotIn")):
            self._problem((*at, "values"), "needed by In and NotIn, and by nothing else")
        read = _reader(str(found.get("key", "")))
        if read is None:
            some = '.metadata.labels["KEY"], .metadata.annotations["KEY"]'
            self._problem((*at, "key"), f"not supported; there are {some}, {', '.join(_READERS)}")
        if read is None or len(self.problems) > before:
            return None
        return Expression(read, found["operator"], frozenset(values))

    def _fields(self, data: Any, at: Where, allowed: Sequence[str], *, needed: Sequence[str] = ()) -> Mapping[str, Any]:
        """Those that are known."""
        if data is _MISSING:
            return {}
        if not isinstance(data, dict):
            self._problem(at, f"expected fields ({', '.join(allowed)})" if allowed else "expected {}")
            return {}
        for name in data:
            if name not in allowed:
                there = f"there are {', '.join(allowed)}" if allowed else "there are no fields here"
                self._problem((*at, name), f"not supported; {there}")
        for name in needed:
            if name not in data:
                self._problem((*at, name), "is missing")
        return {name: value for name, value in data.items() if name in allowed}

    def _texts(self, data: Any, at: Where) -> Mapping[str, str]:
        if not isinstance(data, dict) or any(not isinstance(value, str) for value in data.values()):
            self._problem(at, "expected texts by key")
            return {}
        return data

    def _number(self, value: Any, at: Where, most: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            self._problem(at, f"expected a whole number from 0 to {most}")
            return 0
        return value

    def _among(self, data: Mapping[str, Any], at: Where, allowed: Sequence[str]) -> None:
        """That the last step of the path, if it is there, has one of these values."""
        name = at[-1]
        if name in data and data[str(name)] not in allowed:
            self._problem(at, f'"{data[str(name)]}" is not supported; expected {" or ".join(each for each in allowed if each)}')

    def _problem(self, at: Where, message: str) -> None:
        self.problems.append((at, message))


def _reader(key: str) -> Callable[[Pod], Sequence[str]] | None:
    """None: there is nothing of that name."""
    if (match := _KEYED.fullmatch(key)) is None:
        return _READERS.get(key)
    kind, name = match.groups()

    def read(pod: Pod) -> Sequence[str]:
        among = pod.metadata.labels if kind == "labels" else pod.metadata.annotations
        return [among[name]] if name in among else []

    return read
