"""Which writes a webhook or policy concerns: rules, scopes, equivalent versions, and selectors. Pure.

A rule names operations, API groups, API versions, resources with subresources, and a scope. `match_rules` decides from what is
known of all writes of a resource (see `Target`), so the answers are computed once. `matches_selectors` decides for one write.

Source: pkg/admission/plugin/webhook/predicates of k8s.io/apiserver 1.36.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pinnace.api.admissionregistration_v1_pb2 import RuleWithOperations
from pinnace.api.core_v1_pb2 import Namespace
from pinnace.api.resources import NAMESPACES
from pinnace.api.selectors import LabelSelector, from_message
from pinnace.apiserver.cacher.cacher import ResourceCache
from pinnace.apiserver.registry.admission import CREATE, UPDATE, WriteAttributes

GROUP = "admissionregistration.k8s.io"
"""The API group whose objects no webhook and no policy concerns, so that a broken one can be repaired."""
EXACT = "Exact"
NOTHING_REQUIRED = LabelSelector()


class Target(NamedTuple):
    """What all writes of one kind have in common. `api_versions`: those of the resource, that of the request first."""

    operation: str
    api_versions: tuple[str, ...]
    plural: str
    subresource: str
    namespaced: bool


def match_rules(rules: Iterable[RuleWithOperations], match_policy: str, target: Target) -> str:
    """Return the API version in which the rules match: that of the request if possible; "" if they do not match."""
    found = find_rules([(rule, ()) for rule in rules], match_policy, target)
    return found[0].api_version if found else ""


class RuleMatch(NamedTuple):
    """A rule that matches in an API version. `names`: the objects to which it applies; empty: all."""

    api_version: str
    names: Collection[str]

    def applies_to(self, name: str) -> bool:
        return not self.names or name in self.names


def find_rules(
    rules: Iterable[tuple[RuleWithOperations, Collection[str]]], match_policy: str, target: Target
) -> list[RuleMatch]:
    """Return the rules that match, those in the API version of the request first. `rules`: rules with names of objects."""
    rules = list(rules)
    request, *others = target.api_versions
    found = [RuleMatch(request, names) for rule, names in rules if _rule_matches(rule, target, request)]
    if match_policy != EXACT:
        found += [
            RuleMatch(version, names) for rule, names in rules for version in others if _rule_matches(rule, target, version)
        ]
    return found


def _rule_matches(rule: RuleWithOperations, target: Target, api_version: str) -> bool:
    inner = rule.rule
    group, _, version = api_version.rpartition("/")
    return (
        inner.scope in ("", "*", "Namespaced" if target.namespaced else "Cluster")
        and _matches_pattern(rule.operations, target.operation)
        and _matches_pattern(inner.apiGroups, group)
        and _matches_pattern(inner.apiVersions, version)
        and any(_names_resource(pattern, target) for pattern in inner.resources)
    )


def _matches_pattern(patterns: Sequence[str], value: str) -> bool:
    return "*" in patterns or value in patterns


def _names_resource(pattern: str, target: Target) -> bool:
    plural, _, subresource = pattern.partition("/")
    return plural in ("*", target.plural) and subresource in ("*", target.subresource)


class Selectors(NamedTuple):
    """The parsed selectors of a webhook or policy."""

    namespaces: LabelSelector
    objects: LabelSelector

    @classmethod
    def from_source(cls, source: Any) -> "Selectors":
        """Read the fields of a webhook or of MatchResources."""
        return cls(from_message(source.namespaceSelector), from_message(source.objectSelector))


class NamespaceLabels(Mapping[str, Mapping[str, str]]):
    """The labels of the namespaces in a cache."""

    def __init__(self, cache: ResourceCache[Namespace]) -> None:
        self._cache = cache

    def __getitem__(self, name: str) -> Mapping[str, str]:
        entry = self._cache.get(NAMESPACES.key("", name))
        if entry is None:
            raise KeyError(name)
        return entry.obj.metadata.labels

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return len(self._cache)


def matches_selectors(selectors: Selectors, change: WriteAttributes, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
    """`namespaces`: the labels of namespaces by name."""
    return _selects_object(selectors.objects, change) and _selects_namespace(selectors.namespaces, change, namespaces)


def _selects_object(selector: LabelSelector, change: WriteAttributes) -> bool:
    if selector == NOTHING_REQUIRED:
        return True
    versions = (getattr(obj, "metadata", None) for obj in (change.obj, change.old))
    return any(metadata is not None and selector.matches(metadata.labels) for metadata in versions)


def _selects_namespace(selector: LabelSelector, change: WriteAttributes, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
    if selector == NOTHING_REQUIRED:
        return True
    if change.resource is NAMESPACES:
        if not change.subresource and change.operation in (CREATE, UPDATE):
            return selector.matches(change.obj.metadata.labels)
        return selector.matches(change.old.metadata.labels)
    if not change.resource.namespaced:
        return True
    return selector.matches(namespaces.get(namespace_of(change), {}))


def name_of(change: WriteAttributes) -> str:
    return change.name or _metadata_field(change, "name")


def namespace_of(change: WriteAttributes) -> str:
    """Return the namespace of the object. As in Kubernetes, the namespace of a namespace is itself."""
    if change.resource is NAMESPACES:
        return name_of(change)
    return change.namespace or _metadata_field(change, "namespace")


def _metadata_field(change: WriteAttributes, field: str) -> str:
    source = change.obj if change.obj is not None else change.old
    metadata = getattr(source, "metadata", None)
    return "" if metadata is None else str(getattr(metadata, field))
