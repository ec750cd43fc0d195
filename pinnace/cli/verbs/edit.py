"""`pinnace edit`: changes objects in an editor."""

import os
import tempfile
from pathlib import Path
from typing import Any

import click

from pinnace.api.codec import to_dict
from pinnace.api.manifest import ManifestError
from pinnace.api.resources import Object, Resource
from pinnace.cli.changes.editing import body, page, read, save
from pinnace.cli.command import verb
from pinnace.cli.errors import explain
from pinnace.cli.objects import arguments
from pinnace.cli.objects.query import Query, fetch
from pinnace.cli.objects.targets import Item, reference
from pinnace.cli.objects.written import written
from pinnace.cli.outcomes import ExitCode, Failure, usage
from pinnace.cli.output.documents import dump
from pinnace.cli.session import Session, run
from pinnace.cli.settings import Settings
from pinnace.cli.terminal.console import note, out
from pinnace.client.errors import ApiError, Invalid


@verb(
    "edit",
    examples="""
        pinnace edit deployment web
        EDITOR="code --wait" pinnace edit pod/a node/b    # one after the other
    """,
)
@arguments.what
def edit(settings: Settings, what: tuple[str, ...]) -> None:
    """Change objects in an editor.

    Opens each as YAML in the editor of $KUBE_EDITOR, $VISUAL or $EDITOR (otherwise vi), and stores what you save. What the
    server refuses is opened again, with its reasons. What cannot be stored stays in a file.
    """
    query = Query.of(what)
    if not all(target.names for target in query.targets):
        raise usage("which objects?", hint="name them: `pinnace edit deployment web`")
    found: list[Item] = []

    async def find(session: Session) -> None:
        for target in query.targets:
            found.extend((target.resource, obj) for obj in await fetch(session, query, target))

    run(settings, find)
    for item in found:
        _edit(settings, *item)


def _edit(settings: Settings, resource: Resource[Any], obj: Object) -> None:
    """Until it is stored, or given up."""
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
    """What the editor has left. Raises Failure when it has failed, or left no text."""
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
