"""How people name objects on a command line: `pods`, `pods,nodes`, `pod a b`, `pod/a node/b`."""

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
"""So many objects are selected by name in a watch; for more, all of the namespace are watched."""
SHOWN = 5
CATEGORY = "all"
IN_CATEGORY = (PODS, SERVICES, DEPLOYMENTS, REPLICA_SETS, JOBS)
"""What "all" stands for where no names follow: what people run, as in kubectl."""

Item: TypeAlias = tuple[Resource[Any], Object]
"""An object, and what it is."""


@dataclass(frozen=True, slots=True)
class Target:
    """Objects of one resource: the named ones in the order given, or all that a selector leaves when there are no names."""

    resource: Resource[Any]
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a resource. An empty namespace is all of them."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""

    @classmethod
    def named(cls, namespace: str, names: Sequence[str]) -> "Selection":
        """Those of these names, as a watch takes it; where they are many, all of the namespace."""
        return cls(namespace, fields=one_of("metadata.name", names) if len(names) <= SELECTABLE else "")


def reference(resource: Resource[Any], name: str) -> str:
    """ "pod/a", "priorityclass.scheduling.k8s.io/high": how output names an object, and input may. What the terminal would take
    for a command is left out of the name: those of roles are made of any characters."""
    return f"{resource.kind.lower()}{f'.{resource.group}' if resource.group else ''}/{one_line(name)}"


def some_of(references: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    more = len(references) - SHOWN
    return ", ".join(references[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def parse_resource(word: str) -> Resource[Any]:
    """Plural, singular, kind or short name, with or without the API group. Raises Failure (usage)."""
    name, _, group = word.partition(".")
    if (lacking := absent(name)) is not None:
        raise usage(str(lacking), hint=lacking.instead)
    if name == CATEGORY:
        raise usage(f'"{CATEGORY}" stands for several kinds, and takes no names', hint="name the kind, as in deployment/web")
    found = resources.by_name(name)
    if found is None or (group and not _is_group_of(found, group)):
        known = [name for resource in resources.ALL for name in resources.names(resource)]
        kinds = ", ".join(resource.plural for resource in resources.ALL)
        hint = f"say KIND NAME or KIND/NAME, as in deployment/web; there are {kinds}"
        raise usage(f'unknown resource "{word}"{did_you_mean(name, known)}', hint=hint)
    return found


def _is_group_of(resource: Resource[Any], group: str) -> bool:
    """ "scheduling.k8s.io", or with the version first as in "v1.scheduling.k8s.io"."""
    own, _, version = resource.api_version.rpartition("/")
    return group in ((own, f"{version}.{own}") if own else (version,))


def parse(words: Sequence[str]) -> list[Target]:
    """At least one target. Raises Failure (usage) with what would have been right."""
    if not words:
        raise usage("you must specify the type of resource", hint="name one, such as `pods` or `node/a`")
    if "/" in words[0]:
        return _references(words)
    names = tuple(dict.fromkeys(words[1:]))
    kinds = [kind for word in words[0].split(",") if word for kind in _kinds(word, bool(names))]
    if slashed := next((name for name in names if "/" in name), None):
        raise usage(f'"{slashed}": a name has no slash', hint="either `pod a b` or `pod/a pod/b`")
    if not kinds:
        raise usage(f'"{words[0]}" names no resource', hint="name one, such as `pods` or `node/a`")
    return [Target(kind, names) for kind in dict.fromkeys(kinds)]


def _kinds(word: str, named: bool) -> Sequence[Resource[Any]]:
    return IN_CATEGORY if word == CATEGORY and not named else (parse_resource(word),)


def _references(words: Sequence[str]) -> list[Target]:
    """Neighbours of one kind become one target; the order stays."""
    targets: list[Target] = []
    for word in words:
        kind, slash, name = word.partition("/")
        if not slash or not kind or not name or "/" in name:
            raise usage(f'"{word}": expected KIND/NAME', hint="either `pod a b` or `pod/a pod/b`")
        resource = parse_resource(kind)
        if targets and targets[-1].resource is resource:
            targets[-1] = Target(resource, (*targets[-1].names, name))
        else:
            targets.append(Target(resource, (name,)))
    return targets
