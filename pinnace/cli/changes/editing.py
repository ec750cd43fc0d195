"""What `edit` puts before a person, and what it makes of what comes back."""

from collections.abc import Sequence
from typing import Any

from pinnace.api.codec import revised, to_dict
from pinnace.api.manifest import ManifestError, load
from pinnace.api.merge import by_key
from pinnace.api.resources import Object, Resource
from pinnace.cli.objects.written import completed, written
from pinnace.client.errors import Conflict
from pinnace.client.resource import ResourceClient

HEADER = """\
# Change what is to be different, save, and leave the editor. To change nothing, save nothing, or an empty file.
# Lines that begin with # are left out.
"""
ATTEMPTS = 10
"""Every lost attempt means that somebody else's write succeeded: of the status, for example."""


def page(text: str, complaints: Sequence[str] = ()) -> str:
    """What the editor shows. `complaints`: about what came back last time."""
    lines = [f"# {line}\n" for complaint in complaints for line in complaint.splitlines()]
    return "".join((HEADER, "#\n" if lines else "", *lines, text))


def body(text: str) -> str:
    """What came back, without comments."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))


def read(resource: Resource[Any], before: Object, text: str, source: str) -> dict[str, Any]:
    """The JSON form of what came back. Raises ManifestError."""
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
    """Did it change anything? What others have changed meanwhile stays. Raises Conflict where that is the same thing, and other
    ApiErrors."""
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
            return overtaken is not None  # then the connection sent it twice, as an answer was lost; or others did the same
        try:
            await client.update(new)
        except Conflict as conflict:
            overtaken = conflict
            live = await client.get(before.metadata.name, before.metadata.namespace)
        else:
            return True
    assert overtaken is not None, "what nobody has changed does not clash"
    raise overtaken


class Clash(Exception):
    """Both have changed the same thing, each in another way."""


def merged(base: Any, mine: Any, theirs: Any, name: str = "") -> Any:
    """What both have made of `base`, the value of the field `name`. Raises Clash."""
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
