"""What `edit` puts before a person, and what it makes of what comes back."""

from collections.abc import Sequence
from typing import Any

from pinnace.api.codec import to_dict
from pinnace.api.manifest import ManifestError, load
from pinnace.api.resources import Object, Resource
from pinnace.api.unmodelled import revised
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
    """Did it change anything? Raises Conflict when somebody else has changed meanwhile what was edited, and other ApiErrors."""
    live: Any = before
    for attempt in range(1, ATTEMPTS + 1):
        form = to_dict(live)
        new = revised(client.resource, live, form, completed(edited, form))
        if new == live:
            return False
        try:
            await client.update(new)
        except Conflict:
            live = await client.get(before.metadata.name, before.metadata.namespace)
            if written(to_dict(live)) == written(to_dict(new)):  # the connection sent it twice, as an answer was lost
                return True
            if attempt == ATTEMPTS or written(to_dict(live)) != written(to_dict(before)):
                raise
        else:
            return True
    raise AssertionError("unreachable")
