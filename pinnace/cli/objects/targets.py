"""References to objects in arguments: `pods`, `pods,nodes`, `pod a b`, `pod/a node/b`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pinnace.api import resources
from pinnace.api.resources import DEPLOYMENTS, JOBS, PODS, REPLICA_SETS, SERVICES, Object, Resource, absent
from pinnace.api.selectors import one_of
from pinnace.cli.command import did_you_mean
from pinnace.cli.outcomes import usage
from pinnace.cli.terminal import one_line

SELECTABLE = 50
"""Maximum number of objects that a watch selects by name. Above it, the whole namespace is watched."""
SHOWN = 5
CATEGORY = "all"
IN_CATEGORY = (PODS, SERVICES, DEPLOYMENTS, REPLICA_SETS, JOBS)
"""The kinds of the category "all", as in kubectl."""

Item: TypeAlias = tuple[Resource[Any], Object]
"""A resource, and an object of it."""


@dataclass(frozen=True, slots=True)
class Target:
    """Objects of one resource: the named ones in the given order, or without names all that match the selectors."""

    resource: Resource[Any]
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection of objects of a resource. An empty namespace means all namespaces."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""

    @classmethod
    def named(cls, namespace: str, names: Sequence[str]) -> "Selection":
        """Select objects by name, or the whole namespace if there are too many names."""
        return cls(namespace, fields=one_of("metadata.name", names) if len(names) <= SELECTABLE else "")


def reference(resource: Resource[Any], name: str) -> str:
    """Return the reference in output and arguments, such as "pod/a" or "priorityclass.scheduling.k8s.io/high". Control
    characters, which names of roles can contain, are removed."""
    return f"{resource.kind.lower()}{f'.{resource.group}' if resource.group else ''}/{one_line(name)}"


def some_of(references: Sequence[str]) -> str:
    """Return the first references, and the number of the others."""
    more = len(references) - SHOWN
    return ", ".join(references[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def parse_resource(word: str) -> Resource[Any]:
    """Find a resource by its plural, singular, kind or short name, with or without the API group. Raises Failure (usage)."""
    name, _, group = word.partition(".")
    if (lacking := absent(name)) is not None:
        raise usage(str(lacking), hint=lacking.instead)
    if name == CATEGORY:
        raise usage(f'"{CATEGORY}" is a category of kinds and takes no names', hint="specify the kind, as in deployment/web")
    found = resources.by_name(name)
    if found is None or (group and not _is_group_of(found, group)):
        known = [name for resource in resources.ALL for name in resources.names(resource)]
        kinds = ", ".join(resource.plural for resource in resources.ALL)
        hint = f"use KIND NAME or KIND/NAME, as in deployment/web; the kinds are {kinds}"
        raise usage(f'unknown resource "{word}"{did_you_mean(name, known)}', hint=hint)
    return found


def _is_group_of(resource: Resource[Any], group: str) -> bool:
    """Whether `group` is the API group of the resource, such as "scheduling.k8s.io" or, with the version,
    "v1.scheduling.k8s.io"."""
    own, _, version = resource.api_version.rpartition("/")
    return group in ((own, f"{version}.{own}") if own else (version,))


def parse(words: Sequence[str]) -> list[Target]:
    """Return at least one target. Raises Failure (usage)."""
    if not words:
        raise usage("you must specify the type of resource", hint="such as `pods` or `node/a`")
    if "/" in words[0]:
        return _references(words)
    names = tuple(dict.fromkeys(words[1:]))
    kinds = [kind for word in words[0].split(",") if word for kind in _kinds(word, bool(names))]
    if slashed := next((name for name in names if "/" in name), None):
        raise usage(f'"{slashed}": a name cannot contain a slash', hint="use either `pod a b` or `pod/a pod/b`")
    if not kinds:
        raise usage(f'"{words[0]}" is not a resource', hint="such as `pods` or `node/a`")
    return [Target(kind, names) for kind in dict.fromkeys(kinds)]


def _kinds(word: str, named: bool) -> Sequence[Resource[Any]]:
    return IN_CATEGORY if word == CATEGORY and not named else (parse_resource(word),)


def _references(words: Sequence[str]) -> list[Target]:
    """Adjacent references of one kind become one target. The order is preserved."""
    targets: list[Target] = []
    for word in words:
        kind, slash, name = word.partition("/")
        if not slash or not kind or not name or "/" in name:
            raise usage(f'"{word}": expected KIND/NAME', hint="use either `pod a b` or `pod/a pod/b`")
        resource = parse_resource(kind)
        if targets and targets[-1].resource is resource:
            targets[-1] = Target(resource, (*targets[-1].names, name))
        else:
            targets.append(Target(resource, (name,)))
    return targets
