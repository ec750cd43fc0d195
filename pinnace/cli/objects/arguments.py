"""Options and arguments that several verbs share, and their shell completion.

Names of objects are read from the API server with a short timeout. If it does not respond, there are no completions and no
error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from pinnace.api import resources
from pinnace.api.resources import NODES, PODS, Resource
from pinnace.cli.outcomes import usage
from pinnace.cli.session import Session, run
from pinnace.cli.settings import Settings, words

if TYPE_CHECKING:
    from pinnace.api.manifest import Validate


MOST_REPLICAS = 2**31 - 1
"""The maximum of an int32 field of the API."""
MOST = 2**63 - 1
"""The maximum of an int64 field of the API."""


VALIDATIONS: dict[str, Validate] = {"strict": "strict", "warn": "warn", "ignore": "ignore", "true": "strict", "false": "ignore"}
"""The values of kubectl's --validate, and the validation mode of each."""

all_namespaces = click.option("-A", "--all-namespaces", is_flag=True, help="In all namespaces.")
selector = click.option(
    "-l", "--selector", default="", metavar="LABELS", help="Label selector, such as app=web,tier in (a,b),!old"
)
field_selector = click.option(
    "--field-selector",
    default="",
    metavar="FIELDS",
    help="Field selector, such as spec.nodeName=a,status.phase!=Failed",
)
filenames = click.option(
    "-f",
    "--filename",
    "filenames",
    multiple=True,
    type=click.Path(allow_dash=True),
    metavar="FILE",
    help="A file or directory that contains manifests, or - for stdin. May be repeated.",
)
recursive = click.option("-R", "--recursive", is_flag=True, help="Process the directories given with -f recursively.")
validate = click.option(
    "--validate",
    type=click.Choice(list(VALIDATIONS)),
    default="strict",
    is_flag=False,
    flag_value="strict",
    show_default=True,
    callback=lambda ctx, param, value: VALIDATIONS[value],
    help="strict (true) fails on unknown fields, warn drops them with a warning, ignore (false) drops them silently.",
)
at_revision = click.option(
    "--at-revision",
    type=click.IntRange(1, MOST),
    metavar="N",
    help="Read the state at etcd revision N, the resourceVersion of an object or list. Old revisions expire.",
)


def _no_client_dry_run(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if value == "client":
        raise usage(
            "--dry-run=client is not supported: pinnace merges and validates objects on the server",
            hint="use --dry-run=server, which reports the changes without persisting them",
        )
    return value


dry_run = click.option(
    "--dry-run",
    type=click.Choice(["none", "server", "client"]),
    metavar="[none|server]",
    callback=_no_client_dry_run,
    default="none",
    help="server: submit a request that the server validates and does not persist.",
)
DRY_RUN_SAID = " (server dry run)"
"""Suffix of output lines, as in kubectl."""


COMPLETION_TIMEOUT = 2.0
"""Timeout of a completion, in seconds."""

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def targets_of(*kinds: Resource[Any]) -> Complete:
    """Return the completion of `KIND [NAME...] | KIND/NAME...` for these kinds."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        words = _before(ctx, param)
        if "/" in incomplete:
            return complete_reference(ctx, param, incomplete)
        if words:
            found = [] if "/" in words[0] else [resources.by_name(word) for word in words[0].split(",")]
            return items([name for kind in found if kind for name in _names(ctx, kind)], words, incomplete)
        before, comma, _ = incomplete.rpartition(",")
        return items([f"{before}{comma}{each.plural}" for each in kinds], words, incomplete)

    return complete


def complete_reference(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete `KIND/NAME`."""
    word = incomplete.partition("/")[0]
    kind = resources.by_name(word)
    names = _names(ctx, kind) if kind is not None else []
    return items([f"{word}/{name}" for name in names], _before(ctx, param), incomplete)


def one_of(*values: str) -> Complete:
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return items(values, _before(ctx, param), incomplete)

    return complete


def names_of(resource: Resource[Any]) -> Complete:
    """Return the completion of `NAME...`, or of `NAME | KIND/NAME`."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        if "/" in incomplete:
            return complete_reference(ctx, param, incomplete)
        return items(_names(ctx, resource), _before(ctx, param), incomplete)

    return complete


complete_target = targets_of(*resources.ALL)
what = click.argument("what", nargs=-1, metavar="KIND [NAME...] | KIND/NAME...", shell_complete=complete_target)
nodes = click.argument("nodes", nargs=-1, shell_complete=names_of(NODES))
pods = click.argument("pods", nargs=-1, shell_complete=names_of(PODS))


def _before(ctx: click.Context, param: click.Parameter) -> Sequence[str]:
    """Return the preceding values of the argument."""
    said = ctx.params.get(param.name or "")
    return said if isinstance(said, tuple) else ()


def items(values: Sequence[str], said: Sequence[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(value) for value in words(values, incomplete) if value not in said]


def _names(ctx: click.Context, resource: Resource[Any]) -> list[str]:
    settings, found = ctx.ensure_object(Settings), list[str]()
    settings.timeout = COMPLETION_TIMEOUT

    async def ask(session: Session) -> None:
        there = await session.client.of(resource).list(session.namespace if resource.namespaced else "")
        found.extend(each.metadata.name for each in there.items)

    with suppress(Exception):  # completion does not report errors
        run(settings, ask)
    return found
