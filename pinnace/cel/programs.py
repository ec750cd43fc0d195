"""Single expressions with named variables: match conditions of webhooks, admission policies, mutations.

A caller compiles an expression once and evaluates it often. Results and errors are values. Expressions of one request share a
`Meter`.

Source: staging/src/k8s.io/apiserver/pkg/admission/plugin/cel and pkg/cel/mutation of Kubernetes 1.36
"""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pinnace.cel import costs, evaluation, libraries, syntax
from pinnace.cel.checker import check
from pinnace.cel.conversions import format_duration, format_timestamp, parse_timestamp
from pinnace.cel.functions import parse_type
from pinnace.cel.meter import CALL_LIMIT, WORK_LIMIT, Meter
from pinnace.cel.syntax import CompileError
from pinnace.cel.types import Duration, EvaluationFailure, Field, Optional, StructValue, Timestamp, Type, Uint

_TEXT_MAP = "map(string, string)"
_GO_NAMES = {"null": "null_type", "timestamp": "google.protobuf.Timestamp", "duration": "google.protobuf.Duration"}
_OWN_NAMES = re.compile(rf"\b({'|'.join(_GO_NAMES)})\b")
_JSON_SCALARS = frozenset({str, bool, int, float, type(None)})
_WORK_PER_ITEM = 6


@dataclass(frozen=True, slots=True)
class EvaluationError:
    """The result of an evaluation that failed, e.g. "no such key: data"."""

    message: str


def object_type(name: str, fields: Mapping[str, "str | Type"]) -> Type:
    """Return a type with fields. Types are names of CEL ("string", "list(string)", "dyn") or types."""
    return Type("struct", name, fields={key: Field(_as_type(field), key) for key, field in fields.items()})


def _as_type(found: str | Type) -> Type:
    return parse_type(found) if isinstance(found, str) else found


_GVK = object_type("kubernetes.GroupVersionKind", dict.fromkeys(("group", "version", "kind"), "string"))
_GVR = object_type("kubernetes.GroupVersionResource", dict.fromkeys(("group", "version", "resource"), "string"))
_USER = object_type(
    "kubernetes.UserInfo",
    {"username": "string", "uid": "string", "groups": "list(string)", "extra": "map(string, list(string))"},
)
REQUEST = object_type(
    "kubernetes.AdmissionRequest",
    {
        "kind": _GVK, "resource": _GVR, "subResource": "string", "requestKind": _GVK, "requestResource": _GVR,
        "requestSubResource": "string", "name": "string", "namespace": "string", "operation": "string", "userInfo": _USER,
        "dryRun": "bool", "options": "dyn",
    },
)  # fmt: skip
"""The type of `request`."""
_NAMESPACE_META = object_type(
    "kubernetes.NamespaceMetadata",
    {
        "name": "string", "generateName": "string", "namespace": "string", "labels": _TEXT_MAP, "annotations": _TEXT_MAP,
        "UID": "string",
        "creationTimestamp": "timestamp", "deletionGracePeriodSeconds": "int", "deletionTimestamp": "timestamp",
        "generation": "int",
        "resourceVersion": "string", "finalizers": "list(string)",
    },
)  # fmt: skip
NAMESPACE = object_type(
    "kubernetes.Namespace",
    {
        "metadata": _NAMESPACE_META,
        "spec": object_type("kubernetes.NamespaceSpec", {"finalizers": "list(string)"}),
        "status": object_type("kubernetes.NamespaceStatus", {"phase": "string"}),
    },
)
"""The type of `namespaceObject`."""
ADMISSION_VARIABLES: Mapping[str, str | Type] = {
    "object": "dyn", "oldObject": "dyn", "request": REQUEST, "params": "dyn", "namespaceObject": NAMESPACE,
    "authorizer": "authorizer",
    "authorizer.requestResource": "resourcecheck",
}  # fmt: skip
"""The variables of an admission policy without `variables`. A match condition of a webhook has no params and no
namespaceObject."""
_PATCH = object_type("JSONPatch", {"op": "string", "path": "string", "from": "string", "value": "dyn"})


def _constructed_type(name: str) -> Type | None:
    if name == "JSONPatch":
        return _PATCH
    if name == "Object" or name.startswith("Object."):
        return Type("struct", name)
    return None


class Program:
    """A compiled expression. `result_type`: CEL's name of the type of its result, e.g. "bool", "dyn", "list(JSONPatch)".

    `cost`: the estimated maximum cost; texts and lists of the variables have no limit.
    """

    __slots__ = ("_declared", "_program", "cost", "result_type", "text")

    def __init__(self, text: str, node: syntax.Node, declared: Mapping[str, Type]) -> None:
        self.text, self.result_type = text, str(node.type)
        self._declared = declared
        self._program = evaluation.Program(node, tuple(declared))
        self.cost = costs.estimate(node)

    def evaluate(self, bindings: Mapping[str, Any], meter: Meter | None = None) -> Any:
        """Return the result as JSON, or an EvaluationError. Never raises.

        The types of objects in an object must follow its fields: `Object{spec: Object.spec{}}`.

        `bindings`: JSON by the name of the variable; None is null, and a missing name is an error when the expression reads it.
        `authorizer` is bound to an `AuthorizerValue`, `variables` to `Variables`. `meter`: it limits the cost of this
        evaluation to its `cost_limit`, and the work of all evaluations with it.
        """
        meter = Meter(CALL_LIMIT, WORK_LIMIT) if meter is None else meter
        value = self.evaluate_value(bindings, meter)
        if value is True or value is False or isinstance(value, EvaluationError):
            return value
        try:
            return _Output(meter).convert(value)
        except EvaluationFailure as failure:
            return EvaluationError(str(failure))

    def evaluate_value(self, bindings: Mapping[str, Any], meter: Meter | None = None) -> Any:
        """Return the result as a value of CEL (`pinnace.cel.types`), or an EvaluationError."""
        meter = Meter(CALL_LIMIT, WORK_LIMIT) if meter is None else meter
        meter.cost = 0
        if "namespaceObject" in bindings and self._declared.get("namespaceObject") is NAMESPACE:
            bindings = {**bindings, "namespaceObject": _convert_namespace(bindings["namespaceObject"])}
        try:
            return self._program.evaluate(meter, bindings)
        except EvaluationFailure as failure:
            return EvaluationError(str(failure))


def compile_expression(
    text: str, variables: Mapping[str, str | Type] = ADMISSION_VARIABLES, *, result_types: Sequence[str] = ()
) -> Program:
    """Compile an expression over variables. Types are names of CEL: "dyn", "bool", "list(string)", "authorizer"; or types.

    Raises CompileError: "compilation failed: ERROR: <input>:1:5: ...", or "must evaluate to bool but got int" if the type of
    the result is not one of `result_types`.
    """
    libraries.load_libraries()
    declared = {name: _as_type(found) for name, found in variables.items()}
    try:
        node, source = syntax.parse(text)
        check(node, source, declared, _constructed_type)
    except CompileError as error:
        raise CompileError(f"compilation failed: {error}") from None
    except RecursionError:
        raise CompileError("compilation failed: ERROR: <input>:-1:0: expression recursion limit exceeded") from None
    if result_types and str(node.type) not in result_types:
        wanted = result_types[0] if len(result_types) == 1 else f"one of [{' '.join(result_types)}]"
        raise CompileError(f"must evaluate to {_describe_types(wanted)} but got {_describe_types(str(node.type))}")
    return Program(text, node, declared)


def _describe_types(text: str) -> str:
    """Return names of types as cel-go prints them."""
    return _OWN_NAMES.sub(lambda match: _GO_NAMES[match[0]], text)


class Variables(dict[str, Any]):
    """The value of `variables`: each one is evaluated when it is first read."""

    def __init__(self, programs: Mapping[str, Program], bindings: Mapping[str, Any], meter: Meter) -> None:
        super().__init__(programs)
        self._bindings, self._meter = {**bindings, "variables": self}, meter
        self._values: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            program: Program = super().__getitem__(name)
            cost = self._meter.cost
            self._values[name] = program.evaluate_value(self._bindings, self._meter)
            self._meter.cost += cost
        value = self._values[name]
        if isinstance(value, EvaluationError):
            raise EvaluationFailure(f'composited variable "{name}" fails to evaluate: {value.message}')
        return value


def variables_type(programs: Mapping[str, Program], declared: Mapping[str, str | Type]) -> Type:
    """Return the type of `variables`, for the expressions after these programs. `declared`: types that replace those of the
    results."""
    return object_type(
        "kubernetes.variables", {name: declared.get(name, program.result_type) for name, program in programs.items()}
    )


def _convert_namespace(namespace: Any) -> Any:
    metadata = namespace.get("metadata") if isinstance(namespace, dict) else None
    if not isinstance(metadata, dict):
        return namespace
    times = ("creationTimestamp", "deletionTimestamp")
    try:
        converted = {
            key: parse_timestamp(value) if key in times else value for key, value in metadata.items() if value is not None
        }
    except EvaluationFailure:
        return namespace
    if "uid" in converted:
        converted["UID"] = converted["uid"]
    return {**namespace, "metadata": converted}


class _Output:
    """Makes JSON of a result. Its parts may be the same value many times, so the work is counted."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def convert(self, value: Any, path: str = "") -> Any:
        """Return a value of CEL as JSON. An absent optional is None; a type is its name.

        `path`: if not empty, objects in the value must have this type.
        """
        kind = type(value)
        if kind in _JSON_SCALARS:
            return value
        if isinstance(value, list):
            self._meter.charge(0, _WORK_PER_ITEM * len(value))
            return [self.convert(item, path) for item in value]
        if kind is StructValue and value.name != _PATCH.name:
            return self._convert_object(value, path)
        if isinstance(value, dict):
            self._meter.charge(0, _WORK_PER_ITEM * len(value))
            return {key if isinstance(key, str) else str(key): self.convert(item, path) for key, item in value.items()}
        if kind is Optional:
            return self.convert(value.value, path)
        if kind is Duration:
            return format_duration(value)
        if kind is Timestamp:
            return format_timestamp(value)
        if kind is bytes:
            self._meter.charge(0, len(value) // 50)
            return base64.b64encode(value).decode()
        return int(value) if kind is Uint else str(value)

    def _convert_object(self, value: StructValue, path: str) -> Any:
        path = path or value.name
        if value.name != path:
            names = f'unexpected type name "{value.name}", expected "{path}"'
            raise EvaluationFailure(f"type mismatch: {names}, which matches field name path from root Object type")
        self._meter.charge(0, _WORK_PER_ITEM * len(value))
        return {key: self.convert(item, f"{path}.{key}") for key, item in value.items()}
