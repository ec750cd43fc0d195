"""Changes of nodes and pods that inject failures.

An update is conditional on the resource version that was read, and is retried on a conflict.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pinnace.api.resources import Object, Resource
from pinnace.cli.objects.query import format_reference
from pinnace.cli.outcomes import ExitCode, Failure, usage_failure
from pinnace.cli.session import CommandSession, run_session
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import print_result
from pinnace.client.errors import ApiError
from pinnace.client.resource import ResourceClient, retry_on_conflict

T = TypeVar("T", bound=Object)
AT_ONCE = 16
"""Concurrent requests."""

Change = Callable[[Any], str]
"""Modifies an object in place and returns the result for the output, such as "failed". It is called again with a newer version
after a conflict. It raises Failure if the object cannot be changed, and leaves the object unmodified if there is nothing to
do."""


def change_all(settings: Settings, resource: Resource[Any], names: Sequence[str], labels: str, change: Change) -> None:
    """Change the named or selected objects and print a line for each. After an error the remaining objects are still changed.
    Raises Failure if there are none."""
    kind = resource.kind.lower()
    if bool(names) == bool(labels):
        raise usage_failure(f"you must specify a {kind} or a selector", hint=f"name {resource.plural}, or select them with -l")
    names = tuple(dict.fromkeys(name.removeprefix(f"{kind}/") for name in names))
    run_session(settings, lambda session: _change_all(session, resource, names, labels, change))


async def _change_all(
    session: CommandSession, resource: Resource[Any], names: Sequence[str], labels: str, change: Change
) -> None:
    client: ResourceClient[Any] = session.client.of(resource)
    namespace = session.namespace if resource.namespaced else ""
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> str | Exception:
        async with limit:
            try:
                return await change_one(client, await client.get(name, namespace), change)
            except (ApiError, Failure) as error:
                return error

    result = names or [item.metadata.name for item in (await client.list(namespace, labels=labels)).items]
    if not result:
        hint = f"`pinnace get {resource.plural} --show-labels` lists existing objects"
        raise Failure(f"no {resource.plural} match: nothing was changed", hint=hint, code=ExitCode.NOT_FOUND)
    for name, outcome in zip(result, await asyncio.gather(*map(one, result)), strict=True):
        where = format_reference(resource, name)
        if isinstance(outcome, Exception):
            session.report_failure(outcome, where=where if isinstance(outcome, Failure) else "")
        else:
            print_result(f"{where} {outcome}\n")


async def change_one(client: ResourceClient[T], obj: T, change: Change) -> str:
    """Return the result of `change` for the stored version. Raises ApiError, and the errors of `change`."""
    said = ""

    def alter(new: T) -> None:
        nonlocal said
        said = change(new)

    await retry_on_conflict(client, obj, alter)
    return said
