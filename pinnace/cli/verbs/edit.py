"""The verbs `edit` and `patch`: change objects in an editor, or change fields of objects."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import click

from pinnace.api.codec import revised, to_dict
from pinnace.api.documents import DocumentError, parse
from pinnace.api.manifest import ManifestError, load
from pinnace.api.merge import by_key
from pinnace.api.resources import Object, Resource
from pinnace.api.verbs_pb2 import PatchRequest
from pinnace.cli.command import verb
from pinnace.cli.errors import explain
from pinnace.cli.objects import arguments
from pinnace.cli.objects.query import Item, Query, Target, fetch, reference
from pinnace.cli.outcomes import ExitCode, Failure, usage
from pinnace.cli.output.documents import completed, dump, written
from pinnace.cli.session import Session, run
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import note, out
from pinnace.client.errors import ApiError, Conflict, Invalid
from pinnace.client.resource import ResourceClient


@verb(
    "edit",
    examples="""
        pinnace edit deployment web
        EDITOR="code --wait" pinnace edit pod/a node/b    # one after the other
    """,
)
@arguments.what
def edit(settings: Settings, what: tuple[str, ...]) -> None:
    """Edit resources in an editor.

    Opens each object as YAML in the editor of $KUBE_EDITOR, $VISUAL or $EDITOR (default: vi) and stores the saved text. If the
    server rejects a change, the editor opens again and shows the reasons. A change that cannot be stored is kept in a file.
    """
    query = Query.of(what)
    if not all(target.names for target in query.targets):
        raise usage("you must specify resources", hint="name them: `pinnace edit deployment web`")
    found: list[Item] = []

    async def find(session: Session) -> None:
        for target in query.targets:
            found.extend((target.resource, obj) for obj in await fetch(session, query, target))

    run(settings, find)
    for item in found:
        _edit(settings, *item)


def _edit(settings: Settings, resource: Resource[Any], obj: Object) -> None:
    """Edits one object until it is stored or abandoned."""
    name = reference(resource, obj.metadata.name)
    file = _file()
    text = dump("yaml", written(to_dict(obj)))
    seen, complaints = text, list[str]()
    while True:
        shown = page(seen, complaints)
        file.write_text(shown, encoding="utf-8")
        saved = body(_edited(file, shown))
        if not saved.strip() or saved == text:
            file.unlink()
            note(f"{name}: nothing was changed")
            return
        if complaints and saved == seen:
            raise Failure(
                f"{name}: {complaints[0]}", hint=f"nothing was changed; what you wrote is in {file}", code=ExitCode.INVALID
            )
        seen = saved
        try:
            edited = read(resource, obj, saved, file.name)
            _store(settings, name, resource, obj, edited)
        except (ManifestError, Invalid) as error:
            report = explain(error)
            complaints = list(report.lines) if report else [str(error)]
        except (ApiError, Failure, TimeoutError):
            note(f"nothing was changed; what you wrote is in {file}")
            raise
        else:
            file.unlink()
            return


def _edited(file: Path, shown: str) -> str:
    """The text that the editor has saved. Raises Failure if the editor failed or saved no text."""
    try:
        click.edit(filename=str(file), editor=os.environ.get("KUBE_EDITOR") or None)
        return file.read_text(encoding="utf-8")
    except click.ClickException as error:
        said = error.format_message()
    except UnicodeDecodeError as error:
        said = f"not a text in UTF-8: {error.reason} at byte {error.start}"
    if file.read_bytes() == shown.encode():
        file.unlink()
        raise usage(said, hint="nothing was changed; $KUBE_EDITOR, $VISUAL or $EDITOR says which editor to use")
    raise usage(said, hint=f"nothing was changed; what you wrote is in {file}")


def _store(settings: Settings, name: str, resource: Resource[Any], obj: Object, edited: dict[str, Any]) -> None:
    async def store(session: Session) -> None:
        changed = await save(session.client.of(resource), obj, edited)
        out(f"{name} edited{'' if changed else ' (no change)'}\n")

    run(settings, store)


def _file() -> Path:
    handle, name = tempfile.mkstemp(prefix="pinnace-edit-", suffix=".yaml")
    os.close(handle)
    return Path(name)


TYPES = {"strategic": PatchRequest.STRATEGIC_MERGE, "merge": PatchRequest.MERGE, "json": PatchRequest.JSON}

Patch = Mapping[str, Any] | Sequence[Any]
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
        pinnace patch pod a -p 'spec: {containers: [{name: main, image: "app:2"}]}'   # a patch may be YAML
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
    help="strategic merges lists by the keys of their items, merge replaces lists, json applies operations (RFC 6902).",
)
@click.option(
    "--subresource",
    type=click.Choice(["status", "resize"]),
    help="status: change the status, which is left alone otherwise. resize: change cpu and memory of a pod's containers.",
)
@arguments.dry_run
def patch(
    settings: Settings,
    what: tuple[str, ...],
    text: str | None,
    patch_file: Path | None,
    kind: str,
    subresource: str | None,
    dry_run: str,
) -> None:
    """Update fields of resources.

    Fields that the patch does not name stay unchanged, even if other clients change the object at the same time.
    """
    query = Query.of(what)
    if not all(target.names for target in query.targets):
        raise usage("you must specify resources", hint="name them: `pinnace patch pod a -p PATCH`")
    if (text is None) == (patch_file is None):
        raise usage(
            "must specify exactly one of -p and --patch-file",
            hint="give it with -p PATCH or with --patch-file FILE, not with both",
        )
    if patch_file is not None:
        try:
            text = patch_file.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError as error:
            hint = "--patch-file names a file that can be read"
            raise usage(f"{patch_file}: {(error.strerror or str(error)).lower()}", hint=hint) from None
    wanted = read_patch(text or "", str(patch_file or "-p"), kind)

    async def patch_all(session: Session) -> None:
        for target in query.targets:
            await _patch(session, query, target, wanted, TYPES[kind], subresource or "", dry_run == "server")

    run(settings, patch_all)


def read_patch(text: str, source: str, kind: str) -> Patch:
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
    return cast(Patch, documents[0].data)


async def _patch(
    session: Session, query: Query, target: Target, wanted: Patch, kind: PatchRequest.Type, part: str, dry_run: bool
) -> None:
    """Prints the result for each object. Continues after a failure."""
    client = session.client.of(target.resource)
    for before in await fetch(session, query, target):
        meta = before.metadata
        try:
            after = await client.patch(meta.name, meta.namespace, wanted, kind, subresource=part, dry_run=dry_run)
        except ApiError as error:
            session.failed(error)
        else:
            said = "patched (no change)" if after == before else "patched"
            out(f"{reference(target.resource, meta.name)} {said}{arguments.DRY_RUN_SAID if dry_run else ''}\n")


HEADER = """\
# Change what is to be different, save, and leave the editor. To change nothing, save nothing, or an empty file.
# Lines that begin with # are left out.
"""
ATTEMPTS = 10
"""Attempts are repeated because each conflict means that another write succeeded, for example of the status."""


def page(text: str, complaints: Sequence[str] = ()) -> str:
    """The text for the editor. `complaints`: about the previous text."""
    lines = [f"# {line}\n" for complaint in complaints for line in complaint.splitlines()]
    return "".join((HEADER, "#\n" if lines else "", *lines, text))


def body(text: str) -> str:
    """The saved text without comments."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))


def read(resource: Resource[Any], before: Object, text: str, source: str) -> dict[str, Any]:
    """The JSON form of the saved text. Raises ManifestError."""
    manifests = load(text, source)
    if len(manifests) != 1:
        raise ManifestError([f"{source}:1: {len(manifests)} objects; leave the one that was here"])
    (manifest,) = manifests
    if manifest.resource is not resource:
        raise ManifestError([f"{source}:{manifest.line}: kind: it is a {resource.kind}, and stays one"])
    for field in ("name", "namespace"):
        was, wanted = getattr(before.metadata, field), getattr(manifest.obj.metadata, field)
        if was != wanted:
            raise ManifestError([f'{source}:{manifest.line}: metadata.{field}: may not be changed (it is "{was}")'])
    return to_dict(manifest.obj)


async def save(client: ResourceClient[Any], before: Object, edited: dict[str, Any]) -> bool:
    """Stores the change, and returns whether there was one. Changes of other clients are kept. Raises Conflict if they changed
    the same field, and other ApiErrors.
    """
    base = written(to_dict(before))
    live: Any = before
    overtaken: Conflict | None = None
    for _ in range(ATTEMPTS):
        form = to_dict(live)
        try:
            wanted = merged(base, edited, written(form))
        except Clash:
            break
        new = revised(client.resource, live, form, completed(wanted, form))
        if new == live:
            # the request was repeated after a lost response, or another client made the same change
            return overtaken is not None
        try:
            await client.update(new)
        except Conflict as conflict:
            overtaken = conflict
            live = await client.get(before.metadata.name, before.metadata.namespace)
        else:
            return True
    assert overtaken is not None, "a conflict requires a later version"
    raise overtaken


class Clash(Exception):
    """Both sides have changed the same value in different ways."""


def merged(base: Any, mine: Any, theirs: Any, name: str = "") -> Any:
    """Merges both changes of `base`, the value of the field `name`. Raises Clash."""
    if mine in (base, theirs):
        return theirs
    if theirs == base:
        return mine
    if all(isinstance(each, dict) for each in (base, mine, theirs)):
        return _merged(base, mine, theirs)
    if all(isinstance(each, list) for each in (base, mine, theirs)):
        items = [by_key(name, each) for each in (base, mine, theirs)]
        if all(each is not None for each in items):
            return list(_merged(*items).values())
    raise Clash


_GONE = object()


def _merged(base: Any, mine: Any, theirs: Any) -> dict[Any, Any]:
    found = {}
    for key in {**mine, **theirs}:
        value = merged(base.get(key, _GONE), mine.get(key, _GONE), theirs.get(key, _GONE), str(key))
        if value is not _GONE:
            found[key] = value
    return found
