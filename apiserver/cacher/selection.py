"""Which objects of a resource a reader wants: a namespace, labels and fields."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

from apiserver.cacher.entry import Entry
from pinnace.api.fields import FIELDS
from pinnace.api.resources import PODS, Resource
from pinnace.api.selectors import FieldRequirement, FieldSelector, LabelSelector, parse_fields, parse_labels

_BY_KEY = "metadata.name"
_BY_NODE = "spec.nodeName"
_BY_PHASE = "status.phase"


@dataclass(frozen=True)
class Selection:
    """Equal selections select the same; watchers that have equal ones share the work. Make it with `parse`."""

    resource: Resource[Any]
    namespace: str
    """"" is all."""
    labels: LabelSelector
    fields: FieldSelector
    prefix: str = field(init=False, compare=False)
    """The keys of all selected objects begin with this."""
    names: frozenset[str] | None = field(init=False, compare=False)
    """The names that can be selected; None: any."""
    key: str | None = field(init=False, compare=False)
    """The only key that can be selected; None: there may be others."""
    nodes: frozenset[str] | None = field(init=False, compare=False)
    """The nodes whose pods can be selected ("" is no node); None: any."""
    phases: frozenset[str] | None = field(init=False, compare=False)
    """The phases that pods can be selected in; None: any but `no_phases`."""
    no_phases: frozenset[str] = field(init=False, compare=False)
    """The phases that pods cannot be selected in."""
    plain: bool = field(init=False, compare=False)
    """Nothing but `prefix` matters."""
    everything: bool = field(init=False, compare=False)
    """All objects of the resource."""
    questions: int = field(init=False, compare=False)
    """What each event is asked for it: whether it is of the namespace, and each requirement."""
    needs_object: bool = field(init=False, compare=False)
    """Does `matches` look into the parsed object?"""
    _parsed: tuple[FieldRequirement, ...] = field(init=False, compare=False, repr=False)
    """The requirements that only the parsed object can answer."""

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "prefix", f"{self.resource.prefix}{self.namespace}/" if self.namespace else self.resource.prefix)
        put(self, "names", self.fields.allowed(_BY_KEY))
        put(self, "key", self._only_key())
        put(self, "nodes", self.fields.allowed(_BY_NODE))
        put(self, "questions", 1 + len(self.labels.requirements) + len(self.fields.requirements))
        put(self, "plain", not self.labels.requirements and not self.fields.requirements)
        put(self, "everything", self.plain and not self.namespace)
        requirements = self.fields.requirements
        by_phase = [r for r in requirements if r.name == _BY_PHASE] if self.resource is PODS else []
        put(self, "phases", self.fields.allowed(_BY_PHASE) if by_phase else None)
        put(self, "no_phases", frozenset[str]().union(*(r.values for r in by_phase if r.negated)))
        answered = [*by_phase, *(r for r in requirements if r.name in (_BY_KEY, _BY_NODE) and not r.negated)]
        put(self, "_parsed", tuple(r for r in requirements if r not in answered))
        put(self, "needs_object", bool(self._parsed or self.labels.requirements))

    @classmethod
    def parse(cls, resource: Resource[Any], namespace: str, label_text: str, field_text: str) -> "Selection":
        """`namespace` "" is all of them; it is ignored for cluster-scoped resources. Raises SelectorError."""
        labels, fields = parse_labels(label_text), parse_fields(field_text, FIELDS[resource.plural])
        return cls(resource, namespace if resource.namespaced else "", labels, fields)

    def _only_key(self) -> str | None:
        if self.names is None or len(self.names) != 1 or (self.resource.namespaced and not self.namespace):
            return None
        return self.resource.key(self.namespace, *self.names)

    def matches(self, entry: Entry[Any]) -> bool:
        """Asks the cheap questions first; the object is parsed only for what they leave open."""
        if self.everything:
            return True
        if not entry.key.startswith(self.prefix):
            return False
        if self.nodes is not None and entry.node not in self.nodes:
            return False
        if (self.phases is not None and entry.phase not in self.phases) or entry.phase in self.no_phases:
            return False
        if self.names is not None and entry.key.rpartition("/")[2] not in self.names:
            return False
        if not self.needs_object:
            return True
        obj = entry.peek()
        if not self.labels.matches(obj.metadata.labels):
            return False
        return not self._parsed or all(each.matches(obj) for each in self._parsed)

    @property
    def digest(self) -> str:
        """Tells selections apart, the same on all servers: 16 hexadecimal digits."""
        text = "\n".join((self.resource.plural, self.namespace, str(self.labels), str(self.fields)))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
