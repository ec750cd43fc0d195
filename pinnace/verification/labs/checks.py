"""What checks of labs share: the error, and the module of a lab.

A check is a coroutine function in `pinnace.verification.labs.labNN`, listed in its CHECKS by the id of its step. It reads the
cluster, returns a sentence that states what it found, and raises CheckFailed with a sentence that names the fault. It can
be asked again, so it changes nothing, and it reads what lasts: objects, events and the history of elections.

The checks of a module with CLUSTER = False read files of the current directory. They ignore the client.
"""

from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import TypeAlias

from pinnace.api.core_v1_pb2 import Event, Node, Pod
from pinnace.api.elections_pb2 import Term
from pinnace.api.resources import EVENTS, NODES, PODS
from pinnace.api.wellknown import SCHEDULER_ELECTION
from pinnace.client.client import Client
from pinnace.client.errors import NotFound

Check: TypeAlias = Callable[[Client], Awaitable[str]]


class CheckFailed(Exception):
    """The step is not done, or was done differently."""


def list_checks(number: int) -> Mapping[str, Check]:
    """Return the checks of a lab by step, in order. Empty if it has none."""
    result: Mapping[str, Check] = getattr(_find_module(number), "CHECKS", {})
    return result


def needs_cluster(number: int) -> bool:
    """Return whether the checks of a lab read a cluster."""
    return bool(getattr(_find_module(number), "CLUSTER", True))


def _find_module(number: int) -> ModuleType | None:
    name = f"pinnace.verification.labs.lab{number:02}"
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        return None


async def get_pod(client: Client, name: str, namespace: str = "default") -> Pod:
    """Return a pod. Raises CheckFailed if it does not exist."""
    try:
        return await client.of(PODS).get(name, namespace)
    except NotFound:
        raise CheckFailed(f"pod/{name} does not exist") from None


async def list_nodes(client: Client) -> list[Node]:
    return list((await client.of(NODES).list()).items)


async def list_events(client: Client, reason: str, kind: str = "Pod", name: str = "") -> list[Event]:
    """Return the events with this reason, of one object or of all objects of the kind."""
    result = (await client.of(EVENTS).list()).items
    return [
        event
        for event in result
        if event.reason == reason and event.involvedObject.kind == kind and name in ("", event.involvedObject.name)
    ]


async def list_terms(client: Client) -> list[Term]:
    """Return the terms of the schedulers, the current one last."""
    return list(await client.elections.list_terms(SCHEDULER_ELECTION))
