"""`pinnace patch`: changes fields of objects."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import click

from pinnace.api.documents import DocumentError, parse
from pinnace.api.verbs_pb2 import PatchRequest
from pinnace.cli import options
from pinnace.cli.command import verb
from pinnace.cli.objects import arguments
from pinnace.cli.objects.query import Query, fetch
from pinnace.cli.objects.targets import Target, reference
from pinnace.cli.outcomes import usage
from pinnace.cli.session import Session, run
from pinnace.cli.settings import Settings
from pinnace.cli.terminal.console import out
from pinnace.client.errors import ApiError

TYPES = {"strategic": PatchRequest.STRATEGIC_MERGE, "merge": PatchRequest.MERGE, "json": PatchRequest.JSON}

Wanted = Mapping[str, Any] | Sequence[Any]
_FORMS: Mapping[str, tuple[type, str, str]] = {
    "merge": (dict, "an object", '{"metadata": {"labels": {"app": "web"}}}'),
    "json": (list, "a list of operations", '[{"op": "replace", "path": "/metadata/labels/app", "value": "web"}]'),
}
"""By type of the patch: the form, its name, and an example."""


@verb(
    "patch",
    examples="""
        pinnace patch node node-0 -p '{"spec": {"unschedulable": true}}'
        pinnace patch node node-0 --type json -p '[{"op": "remove", "path": "/spec/taints/0"}]'
        pinnace patch pod/a -p '{"metadata": {"labels": {"app": null}}}'              # null removes
        pinnace patch pod a -p 'spec: {containers: [{name: main, image: "app:2"}]}'   # YAML will do
        pinnace patch pod a --type merge --patch-file change.yaml
        pinnace patch pod a --subresource resize -p 'spec: {containers: [{name: main, resources: {requests: {cpu: "2"}}}]}'
        pinnace patch node node-0 --subresource status -p '{"status": {"capacity": {"example.com/gpu": "2"}}}'
    """,
)
@arguments.what
@click.option("-p", "--patch", "text", metavar="PATCH", help="The patch, as JSON or YAML.")
@click.option(
    "--patch-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A file that holds the patch.",
)
@click.option(
    "--type",
    "kind",
    type=click.Choice(list(TYPES)),
    default="strategic",
    show_default=True,
    help="How lists change: item by item where items have an identity, or (merge) as a whole. json: by operations (RFC 6902).",
)
@click.option(
    "--subresource",
    type=click.Choice(["status", "resize"]),
    help="status: change the status, which is left alone otherwise. resize: change cpu and memory of a pod's containers.",
)
@options.dry_run
def patch(
    settings: Settings,
    what: tuple[str, ...],
    text: str | None,
    patch_file: Path | None,
    kind: str,
    subresource: str | None,
    dry_run: str,
) -> None:
    """Change fields of objects.

    A field that the patch does not name stays as it is, whatever others change meanwhile.
    """
    query = Query.of(what)
    if not all(target.names for target in query.targets):
        raise usage("which objects?", hint="name them: `pinnace patch pod a -p PATCH`")
    if (text is None) == (patch_file is None):
        raise usage("which patch?", hint="give it with -p PATCH or with --patch-file FILE, not with both")
    if patch_file is not None:
        try:
            text = patch_file.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError as error:
            hint = "--patch-file names a file that can be read"
            raise usage(f"{patch_file}: {(error.strerror or str(error)).lower()}", hint=hint) from None
    wanted = read(text or "", str(patch_file or "-p"), kind)

    async def patch_all(session: Session) -> None:
        for target in query.targets:
            await _patch(session, query, target, wanted, TYPES[kind], subresource or "", dry_run == "server")

    run(settings, patch_all)


def read(text: str, source: str, kind: str) -> Wanted:
    """The patch. Raises Failure (usage)."""
    try:
        documents = list(parse(text))
    except DocumentError as error:
        raise usage(f"{source}:{error.line}: {error}", hint="a patch is JSON or YAML") from None
    mistakes = [f"{source}:{line}: {message}" for document in documents for line, message in document.mistakes]
    if mistakes:
        raise usage(mistakes[0])
    form, name, example = _FORMS["json" if kind == "json" else "merge"]
    if len(documents) != 1 or not isinstance(documents[0].data, form):
        raise usage(f"{source}: not {name}", hint=f"such as '{example}'")
    return cast(Wanted, documents[0].data)


async def _patch(
    session: Session, query: Query, target: Target, wanted: Wanted, kind: PatchRequest.Type, part: str, dry_run: bool
) -> None:
    """Tells of each object what came of it; one that fails does not stop the others."""
    client = session.client.of(target.resource)
    for before in await fetch(session, query, target):
        meta = before.metadata
        try:
            after = await client.patch(meta.name, meta.namespace, wanted, kind, subresource=part, dry_run=dry_run)
        except ApiError as error:
            session.failed(error)
        else:
            said = "patched (no change)" if after == before else "patched"
            out(f"{reference(target.resource, meta.name)} {said}{options.DRY_RUN_SAID if dry_run else ''}\n")
