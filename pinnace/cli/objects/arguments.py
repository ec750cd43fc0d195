"""Options and arguments that several verbs share, and their shell completion.

Names of objects are read from the API server with a short timeout. If it does not respond, there are no completions and no
error.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import click
from click.shell_completion import CompletionItem

from pinnace.api.resources import NODES, PODS, Resource
from pinnace.cli.session import CommandSession, run_session
from pinnace.cli.settings import Settings, complete_words

selector = click.option(
    "-l", "--selector", default="", metavar="LABELS", help="Label selector, such as app=web,tier in (a,b),!old"
)

COMPLETION_TIMEOUT = 2.0
"""Timeout of a completion, in seconds."""

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def complete_names(resource: Resource[Any], prefix: str = "") -> Complete:
    """Return the completion of `NAME...`, with a prefix such as "pod/"."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        said = ctx.params.get(param.name or "")
        before: Sequence[str] = said if isinstance(said, tuple) else ()
        values = [f"{prefix}{name}" for name in _list_names(ctx, resource)]
        return [CompletionItem(value) for value in complete_words(values, incomplete) if value not in before]

    return complete


nodes = click.argument("nodes", nargs=-1, shell_complete=complete_names(NODES))
pods = click.argument("pods", nargs=-1, shell_complete=complete_names(PODS))
pod = click.argument("what", nargs=-1, metavar="pod/NAME", shell_complete=complete_names(PODS, "pod/"))


def _list_names(ctx: click.Context, resource: Resource[Any]) -> list[str]:
    settings, result = ctx.ensure_object(Settings), list[str]()
    settings.timeout = COMPLETION_TIMEOUT

    async def ask(session: CommandSession) -> None:
        there = await session.client.of(resource).list(session.namespace if resource.namespaced else "")
        result.extend(item.metadata.name for item in there.items)

    with suppress(Exception):  # completion does not report errors
        run_session(settings, ask)
    return result
