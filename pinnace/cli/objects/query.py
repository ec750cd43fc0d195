"""The objects that arguments name, and their events."""

from collections.abc import Sequence
from typing import Any

from pinnace.api import resources
from pinnace.api.core_v1_pb2 import Event
from pinnace.api.resources import EVENTS, PODS, Object, Resource, find_absent
from pinnace.cli.command import did_you_mean
from pinnace.cli.outcomes import usage_failure
from pinnace.cli.terminal import one_line
from pinnace.client.client import Client
from pinnace.client.errors import NotFound


def format_reference(resource: Resource[Any], name: str) -> str:
    """Return the reference in output and arguments, such as "pod/a" or "priorityclass.scheduling.k8s.io/high". Control
    characters, which names of roles can contain, are removed."""
    return f"{resource.kind.lower()}{f'.{resource.group}' if resource.group else ''}/{one_line(name)}"


def parse_resource(word: str) -> Resource[Any]:
    """Find a resource by its plural, singular, kind or short name, with or without the API group. Raises Failure (usage)."""
    name, _, group = word.partition(".")
    if (lacking := find_absent(name)) is not None:
        raise usage_failure(str(lacking), hint=lacking.instead)
    result = resources.by_name(name)
    if result is None or (group and group != result.group):
        known = [name for resource in resources.ALL for name in resources.names(resource)]
        kinds = ", ".join(resource.plural for resource in resources.ALL)
        raise usage_failure(f'unknown resource "{word}"{did_you_mean(name, known)}', hint=f"the kinds are {kinds}")
    return result


def find_pod(words: Sequence[str], verb: str) -> str:
    """Return the name in "pod/NAME", "pod NAME" or "NAME". Raises Failure (usage)."""
    if len(words) == 1 and "/" not in words[0] and resources.by_name(words[0].lower()) is None:
        return words[0]
    kind, *names = words[0].split("/") + list(words[1:]) if words else [""]
    if len(names) != 1 or not names[0] or parse_resource(kind) is not PODS:
        raise usage_failure("you must specify exactly one pod", hint=f"name it as `pinnace {verb} pod/NAME`")
    return names[0]


async def list_events_about(client: Client, resource: Resource[Any], obj: Object) -> Sequence[Event]:
    """Return the events of an object, without those of an earlier object with the same name."""
    fields = f"involvedObject.kind={resource.kind},involvedObject.name={obj.metadata.name}"
    events = (await client.of(EVENTS).list(obj.metadata.namespace, fields=fields)).items
    return [event for event in events if event.involvedObject.uid == obj.metadata.uid]


async def is_led(client: Client, election: str) -> bool:
    try:
        return bool((await client.elections.get(election)).holder)
    except NotFound:
        return False
