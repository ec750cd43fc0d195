"""Label and field selectors: a parser, and the matching of objects.

    selector    = [ requirement *( "," requirement ) ]          all must match; an empty selector matches everything
    requirement = name ( "=" | "==" | "!=" ) [ value ]
                | name "in" "(" [ value ] *( "," [ value ] ) ")"
                | name "notin" "(" ... ")"                      labels only
                | name ( ">" | "<" ) integer                    labels only
                | [ "!" ] name                                  labels only: the label exists, or does not exist

An object without the label matches `!=` and `notin`. `a in ()` selects the empty value. A value that is not an integer does not
match `>` and `<`. The keys and values of label selectors must be valid label keys and
values. FIELDS lists the fields of each resource. In values of field selectors, a backslash escapes the next character.

Sources: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/ and .../field-selectors/
(`in` for fields is an extension: a fleet of kubelets watches the pods of all of its nodes with one selector).

The fields of each resource are those of Kubernetes. A test compares them with the comments of the services in proto/.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from typing import Any, NamedTuple, TypeVar

from pinnace.api import meta_v1_pb2
from pinnace.api.integers import parse_integer
from pinnace.api.names import label_key, label_value
from pinnace.api.resources import CustomResource, Resource

R = TypeVar("R")
_TOKENS = {
    "label": re.compile(r"\s*(?P<sign>==|!=|=|!|,|<|>|\(|\)|\Z)|\s*(?P<word>(?:\\.|[^\s\\=!,()<>])+)", re.DOTALL),
    "field": re.compile(r"\s*(?P<sign>==|!=|=|!|,|\(|\)|\Z)|\s*(?P<word>(?:\\.|[^\s\\=!,()])+)", re.DOTALL),
}
_PLAIN = re.compile(r"[^\s\\=!,()]*(?:,[^\s\\=!,()]*)*\)")
"""Values after the opening parenthesis up to the closing one, without spaces and backslashes."""
_SIGNS = re.compile(r"([\\=!,()\s])")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
MAX_LENGTH = {"label": 32 << 10, "field": 512 << 10}
"""The maximum length of a selector in characters. Parsing one million characters can take a second. Kubelets list all of their
nodes in a field selector."""
MAX_REQUIREMENTS = 100
"""The maximum number of requirements of a selector. Each requirement is evaluated for each object and each watch event. The
number of values of a requirement is not limited."""
MAX_REMEMBERED = 1 << 10
"""The maximum encoded size of a cached selector in bytes. The parsed form is many times larger, and the cache contains
thousands of selectors."""
_COMPARISONS = (">", "<")
_EQUALITY = ("=", "==", "!=", "in", "notin")
_OPERATORS = {"label": (*_EQUALITY, *_COMPARISONS), "field": _EQUALITY}
_LABEL_HINT = "example: app=web,tier in (a,b),env!=test,gpu,!old"
_FIELD_HINT = "example: metadata.name=a,spec.nodeName in (b,c)"

Read = Callable[[Any], str]
"""A function that reads a field of an object as text. Absent fields are "", booleans are "true" and "false"."""
_NAME: Mapping[str, Read] = {"metadata.name": lambda obj: obj.metadata.name}
_NAMESPACED: Mapping[str, Read] = {**_NAME, "metadata.namespace": lambda obj: obj.metadata.namespace}
FIELDS: Mapping[str, Mapping[str, Read]] = {
    "pods": {
        **_NAMESPACED,
        "spec.hostNetwork": lambda pod: "true" if pod.spec.hostNetwork else "false",
        "spec.nodeName": lambda pod: pod.spec.nodeName,
        "spec.restartPolicy": lambda pod: pod.spec.restartPolicy,
        "spec.schedulerName": lambda pod: pod.spec.schedulerName,
        "spec.serviceAccountName": lambda pod: pod.spec.serviceAccountName,
        "status.nominatedNodeName": lambda pod: pod.status.nominatedNodeName,
        "status.phase": lambda pod: pod.status.phase,
        "status.podIP": lambda pod: pod.status.podIP,
    },
    "nodes": {
        **_NAME,
        "spec.unschedulable": lambda node: "true" if node.spec.unschedulable else "false",
    },
    "namespaces": {
        **_NAME,
        "status.phase": lambda namespace: namespace.status.phase,
    },
    "events": {
        **_NAMESPACED,
        "involvedObject.apiVersion": lambda event: event.involvedObject.apiVersion,
        "involvedObject.fieldPath": lambda event: event.involvedObject.fieldPath,
        "involvedObject.kind": lambda event: event.involvedObject.kind,
        "involvedObject.name": lambda event: event.involvedObject.name,
        "involvedObject.namespace": lambda event: event.involvedObject.namespace,
        "involvedObject.resourceVersion": lambda event: event.involvedObject.resourceVersion,
        "involvedObject.uid": lambda event: event.involvedObject.uid,
        "reason": lambda event: event.reason,
        "reportingComponent": lambda event: event.reportingComponent,
        "source": lambda event: event.source.component or event.reportingComponent,
        "type": lambda event: event.type,
    },
    "priorityclasses": _NAME,
    "leases": _NAMESPACED,
    "persistentvolumes": _NAME,
    "persistentvolumeclaims": _NAMESPACED,
    "storageclasses": _NAME,
    "csinodes": _NAME,
    "services": {
        **_NAMESPACED,
        "spec.clusterIP": lambda service: service.spec.clusterIP,
        "spec.type": lambda service: service.spec.type,
    },
    "poddisruptionbudgets": _NAMESPACED,
    "resourcequotas": _NAMESPACED,
    "limitranges": _NAMESPACED,
    "roles": _NAMESPACED,
    "clusterroles": _NAME,
    "rolebindings": _NAMESPACED,
    "clusterrolebindings": _NAME,
    "replicasets": {
        **_NAMESPACED,
        "status.replicas": lambda replicaset: str(replicaset.status.replicas),
    },
    "deployments": _NAMESPACED,
    "statefulsets": _NAMESPACED,
    "jobs": {
        **_NAMESPACED,
        "status.successful": lambda job: str(job.status.succeeded),
    },
    "cronjobs": _NAMESPACED,
    "daemonsets": _NAMESPACED,
    "controllerrevisions": _NAMESPACED,
    "endpointslices": _NAMESPACED,
    "apiservices": _NAME,
    "endpoints": _NAMESPACED,
    "horizontalpodautoscalers": _NAMESPACED,
    "configmaps": _NAMESPACED,
    "secrets": {**_NAMESPACED, "type": lambda secret: secret.type},
    "serviceaccounts": _NAMESPACED,
    "ipaddresses": {**_NAME, "spec.parentRef.name": lambda address: address.spec.parentRef.name},
    "servicecidrs": _NAME,
    "mutatingwebhookconfigurations": _NAME,
    "validatingwebhookconfigurations": _NAME,
    "validatingadmissionpolicies": _NAME,
    "validatingadmissionpolicybindings": _NAME,
    "mutatingadmissionpolicies": _NAME,
    "mutatingadmissionpolicybindings": _NAME,
    "ingresses": _NAMESPACED,
    "ingressclasses": _NAME,
    "networkpolicies": _NAMESPACED,
    "runtimeclasses": _NAME,
    "customresourcedefinitions": _NAME,
}
"""The selectable fields of each built-in resource, by plural name."""


class SelectorError(ValueError):
    """The text is not a valid selector. `hint`: a valid example. str() contains both."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message}; {hint}")
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    key: str
    values: frozenset[str] | None
    """The accepted values. None accepts any value of an existing label."""
    negated: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        result = value is not None and (self.values is None or value in self.values)
        return result is not self.negated

    def __str__(self) -> str:
        return (
            f"{'!' * self.negated}{self.key}"
            if self.values is None
            else _format_requirement(self.key, self.values, self.negated)
        )


@dataclass(frozen=True, slots=True)
class LabelComparison(LabelRequirement):
    """A comparison with an integer. `operator`: ">" or "<"."""

    operator: str = ">"
    bound: int = 0

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = parse_integer(labels.get(self.key, ""))
        return value is not None and (value > self.bound if self.operator == ">" else value < self.bound)

    def __str__(self) -> str:
        return f"{self.key}{self.operator}{self.bound}"


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """A label selector. Requirements are sorted by their text, so that equivalent selectors are equal."""

    requirements: tuple[LabelRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        for requirement in self.requirements:  # noqa: SIM110 (a loop takes half the time, and watches call this for each event)
            if not requirement.matches(labels):
                return False
        return True

    def and_also(self, more: Iterable[LabelRequirement]) -> "LabelSelector":
        """Return a selector with additional requirements."""
        return LabelSelector(_in_order({*self.requirements, *more}))

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


NOTHING = LabelSelector((LabelRequirement("", frozenset()),))
"""A selector that matches no object."""


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    name: str
    values: frozenset[str]
    negated: bool
    read: Read = field(compare=False, repr=False)

    def matches(self, obj: Any) -> bool:
        return (self.read(obj) in self.values) is not self.negated

    def __str__(self) -> str:
        return _format_requirement(self.name, self.values, self.negated)


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """A field selector. Requirements are sorted by their text."""

    requirements: tuple[FieldRequirement, ...] = ()

    def matches(self, obj: Any) -> bool:
        return all(requirement.matches(obj) for requirement in self.requirements)

    def allowed(self, name: str) -> frozenset[str] | None:
        """Return the values that the selector accepts for the field, or None if it accepts any value."""
        value_sets = [
            requirement.values for requirement in self.requirements if requirement.name == name and not requirement.negated
        ]
        return reduce(frozenset.intersection, value_sets) if value_sets else None

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


def parse_labels(text: str) -> LabelSelector:
    """Parse a label selector. Raises SelectorError."""
    return LabelSelector(_in_order({_label_requirement(term, text) for term in _Parser("label", text, _LABEL_HINT)}))


def parse_fields(text: str, allowed: Mapping[str, Read]) -> FieldSelector:
    """Parse a field selector. `allowed`: the entry of the resource in FIELDS. Raises SelectorError."""
    return FieldSelector(_in_order({_field_requirement(term, text, allowed) for term in _Parser("field", text, _FIELD_HINT)}))


def _in_order(requirements: Collection[R]) -> tuple[R, ...]:
    """Sort the requirements by their text. The text of a single requirement is not computed, because it can be long."""
    return tuple(sorted(requirements, key=str) if len(requirements) > 1 else requirements)


def one_of(field: str, values: Iterable[str]) -> str:
    """Return a field selector that accepts any of the values. There must be at least one value. Values are escaped."""
    return _format_requirement(field, frozenset(values), False)


def from_message(message: meta_v1_pb2.LabelSelector) -> LabelSelector:
    """Return the selector for an object's `selector` field. A selector with an unknown operator matches nothing."""
    encoded = message.SerializeToString(deterministic=True)
    return _cached_selector(encoded) if len(encoded) <= MAX_REMEMBERED else _of_bytes(encoded)


@lru_cache(maxsize=4096)
def _cached_selector(encoded: bytes) -> LabelSelector:
    """Cached, because controllers evaluate the same few selectors for thousands of objects."""
    return _of_bytes(encoded)


def _of_bytes(encoded: bytes) -> LabelSelector:
    message = meta_v1_pb2.LabelSelector.FromString(encoded)
    label_requirements = [LabelRequirement(key, frozenset((value,))) for key, value in message.matchLabels.items()]
    for match_expression in message.matchExpressions:
        match match_expression.operator:
            case "In" | "NotIn":
                label_requirements.append(
                    LabelRequirement(
                        match_expression.key, frozenset(match_expression.values), match_expression.operator == "NotIn"
                    )
                )
            case "Exists" | "DoesNotExist":
                label_requirements.append(
                    LabelRequirement(match_expression.key, None, match_expression.operator == "DoesNotExist")
                )
            case _:
                return NOTHING
    return LabelSelector().and_also(label_requirements)


class _Term(NamedTuple):
    name: str
    values: Sequence[str] | None
    negated: bool
    word: str
    """The operator as written in the text."""


def _label_requirement(term: _Term, text: str) -> LabelRequirement:
    problems = [f'key "{term.name[:64]}" {problem}' for problem in label_key(term.name)]
    for value in term.values or ():
        problems += [f'value "{value[:64]}" {problem}' for problem in label_value(value)]
    bound = None
    if term.word in _COMPARISONS and not problems and (bound := parse_integer(term.values[0] if term.values else "")) is None:
        problems.append("for 'Gt', 'Lt' operators, the value must be an integer")
    if problems:
        raise SelectorError(f'label selector "{text[:200]}": {problems[0]}', _LABEL_HINT)
    if bound is not None:
        return LabelComparison(term.name, None, False, term.word, bound)
    return LabelRequirement(term.name, None if term.values is None else frozenset(term.values), term.negated)


def _field_requirement(term: _Term, text: str, allowed: Mapping[str, Read]) -> FieldRequirement:
    if term.name not in allowed:
        raise SelectorError(f'field selector: unknown field "{term.name[:64]}"', f"supported: {', '.join(sorted(allowed))}")
    if term.values is None or term.word == "notin":
        problem = f'field "{term.name}" requires "=", "==", "!=" or "in"'
        raise SelectorError(f'field selector "{text[:200]}": {problem}', _FIELD_HINT)
    values = frozenset(_ESCAPED.sub(r"\1", value) if "\\" in value else value for value in term.values)
    return FieldRequirement(term.name, values, term.negated, allowed[term.name])


class _Parser:
    """Iterates over the terms of a selector. The module docstring contains the grammar."""

    def __init__(self, kind: str, text: str, hint: str) -> None:
        if len(text) > MAX_LENGTH[kind]:
            raise SelectorError(f"{kind} selector of {len(text):,} characters: at most {MAX_LENGTH[kind]:,} are allowed", hint)
        self._kind = kind
        self._text = text
        self._hint = hint
        self._position = 0
        self._next = ""
        self._is_word = False

    def __iter__(self) -> Iterator[_Term]:
        self._advance()
        if not self._next:
            return
        yield self._parse_term()
        more = MAX_REQUIREMENTS - 1
        while self._next:
            self._expect_sign(",")
            if not more:
                raise SelectorError(f"{self._kind} selector: at most {MAX_REQUIREMENTS} requirements are allowed", self._hint)
            more -= 1
            yield self._parse_term()

    def _parse_term(self) -> _Term:
        if self._take_sign("!"):
            return _Term(self._parse_word("a name"), None, True, "!")
        name = self._parse_word("a name")
        if self._next in ("", ","):
            return _Term(name, None, False, "")
        operator = self._next
        operators = _OPERATORS[self._kind]
        if operator not in operators:
            *others, last = (f'"{item}"' for item in operators)
            raise self._syntax_error(f"{', '.join(others)} or {last}")
        self._advance()
        values = self._parse_values() if operator in ("in", "notin") else [self._next_word()]
        return _Term(name, values, operator in ("!=", "notin"), operator)

    def _parse_values(self) -> list[str]:
        plain = _PLAIN.match(self._text, self._position) if self._is_sign("(") else None
        if plain is not None:
            self._position = plain.end()
            self._advance()
            return plain[0][:-1].split(",")
        self._expect_sign("(")
        values = [self._next_word()]
        while self._take_sign(","):
            values.append(self._next_word())
        self._expect_sign(")")
        return values

    def _parse_word(self, wanted: str) -> str:
        if not self._is_word:
            raise self._syntax_error(wanted)
        return self._next_word()

    def _next_word(self) -> str:
        """Return the next word, or "" if the next token is not a word."""
        word = self._next if self._is_word else ""
        if word:
            self._advance()
        return word

    def _expect_sign(self, sign: str) -> None:
        if not self._take_sign(sign):
            raise self._syntax_error(f'"{sign}"')

    def _take_sign(self, sign: str) -> bool:
        result = self._is_sign(sign)
        if result:
            self._advance()
        return result

    def _is_sign(self, sign: str) -> bool:
        return self._next == sign and not self._is_word

    def _advance(self) -> None:
        match = _TOKENS[self._kind].match(self._text, self._position)
        if match is None:  # only a trailing backslash is not a token
            self._next = ""
            raise self._syntax_error('a character after "\\"')
        self._is_word = match["word"] is not None
        self._next = match["word"] if self._is_word else match["sign"]
        self._position = match.end()

    def _syntax_error(self, wanted: str) -> SelectorError:
        result = f'"{self._next[:64]}"' if self._next else "the end"
        message = f'{self._kind} selector "{self._text[:200]}": expected {wanted} but found {result}'
        return SelectorError(message, self._hint)


def _format_requirement(name: str, values: frozenset[str], negated: bool) -> str:
    escaped = sorted(_SIGNS.sub(r"\\\1", value) for value in values)
    if len(escaped) == 1:
        return f"{name}{'!=' if negated else '='}{escaped[0]}"
    return f"{name} {'notin' if negated else 'in'} ({','.join(escaped)})"


def selectable_fields(resource: Resource[Any]) -> Mapping[str, Read]:
    """Return the fields that field selectors of a resource can name."""
    if isinstance(resource, CustomResource):
        return {**(_NAMESPACED if resource.namespaced else _NAME), **resource.readers}
    return FIELDS[resource.plural]
