"""The verbs `apply` and `diff`.
`Applier` merges on the client. It reads existing objects with one list for each namespace, and creates pods and nodes in
batches; if a list or a batch is forbidden, it uses one request for each object. Applying is idempotent: after a conflict or a
lost response, the object is read and merged again. `ServerSideApplier` sends manifests for the server to merge.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any, Literal, NamedTuple

import click

from pinnace.api import merge, names
from pinnace.api.codec import from_dict, revised, to_dict
from pinnace.api.manifest import Manifest, Validate
from pinnace.api.resources import (
    NODES,
    PODS,
    SECRETS,
    UNSAID,
    Object,
    Resource,
)
from pinnace.api.selectors import one_of
from pinnace.api.verbs_pb2 import PatchRequest
from pinnace.api.wire import portions
from pinnace.cli.command import verb
from pinnace.cli.errors import told
from pinnace.cli.objects import arguments
from pinnace.cli.objects.manifests import in_order, place_all, read, where
from pinnace.cli.objects.query import AT_ONCE, reference
from pinnace.cli.outcomes import ExitCode, Reported, usage
from pinnace.cli.output.documents import dump, written
from pinnace.cli.session import Session, run
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import err, escaped, is_live, out
from pinnace.client.client import Client
from pinnace.client.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, OutcomeUnknown, error_of
from pinnace.printers.columns import is_set

FIELD_MANAGER = "pinnace"
"""The default field manager of `apply --server-side`."""


@verb(
    "apply",
    examples="""
        pinnace apply -f pods.yaml
        pinnace apply -f manifests/ -R                  # files of a directory and its subdirectories
        generate-pods | pinnace apply -f -
        pinnace apply -f pods.yaml --dry-run=server     # validates on the server without persisting
        pinnace apply -f pods.yaml --server-side        # reports conflicts with other field managers
    """,
)
@arguments.filenames
@arguments.recursive
@arguments.dry_run
@arguments.validate
@click.option("--server-side", is_flag=True, help="Run apply in the server instead of the client.")
@click.option("--force-conflicts", is_flag=True, help="With --server-side: become the manager of conflicting fields.")
@click.option(
    "--field-manager",
    default=FIELD_MANAGER,
    show_default=True,
    metavar="NAME",
    help="With --server-side: the manager of the fields.",
)
def apply(
    settings: Settings,
    filenames: tuple[str, ...],
    recursive: bool,
    dry_run: Literal["none", "server"],
    validate: Validate,
    server_side: bool,
    force_conflicts: bool,
    field_manager: str,
) -> None:
    """Apply a configuration to resources by file name or stdin.

    Existing objects are updated by a three-way merge: fields in the manifest are set, fields that an earlier apply set and
    that the manifest no longer has are removed, and all other fields stay unchanged. With --server-side, the server merges and
    records the manager of each field.
    """
    if not filenames:
        raise usage("must specify a file with -f", hint="use -f FILE, or -f - for stdin")
    if force_conflicts and not server_side:
        raise usage("--force-conflicts only works with --server-side", hint="add --server-side")
    manifests = in_order(read(filenames, recursive=recursive, validate=validate, named=True))

    def applier(client: Client) -> Applier | ServerSideApplier:
        if server_side:
            return ServerSideApplier(client, field_manager, force=force_conflicts, dry_run=dry_run == "server")
        return Applier(client, dry_run=dry_run == "server", warn=lambda text: err(f"Warning: {text}"))

    run(settings, lambda session: apply_all(session, manifests, applier, dry_run == "server"))


async def apply_all(
    session: Session,
    manifests: Sequence[Manifest],
    make_applier: Callable[[Client], Applier | ServerSideApplier],
    dry_run: bool,
) -> None:
    session.wait_for_each(len(manifests))
    place_all(manifests, session)
    applier = make_applier(session.client)
    suffix = arguments.DRY_RUN_SAID if dry_run else ""
    with session.progress("applying", len(manifests)) as advance:
        for chunk in chunks(manifests):
            outcomes = await applier.apply(chunk)
            for manifest, outcome in zip((desired.manifest for desired in chunk), outcomes, strict=True):
                if isinstance(outcome, Exception):
                    session.failed(outcome, where(manifest))
                else:
                    out(f"{reference(manifest.resource, manifest.obj.metadata.name)} {outcome}{suffix}\n")
            advance(len(chunk))


@verb(
    "diff",
    examples="""
        pinnace diff -f pods.yaml
        pinnace diff -f manifests/ -R || [ $? = 1 ] && echo "no errors"
    """,
)
@arguments.filenames
@arguments.recursive
@arguments.validate
def diff(settings: Settings, filenames: tuple[str, ...], recursive: bool, validate: Validate) -> None:
    """Show the difference between live and would-be applied versions.

    The server computes each object with a dry run, including defaults. The exit code is 0 when there is no difference, 1 when
    there is one, and 2 or more on errors.
    """
    if not filenames:
        raise usage("must specify a file with -f", hint="use -f FILE, or -f - for stdin")
    found: list[str] = []

    async def compare(session: Session) -> None:
        await _compare(session, manifests, found, colours=is_live() and not settings.no_color)

    try:
        manifests = in_order(read(filenames, recursive=recursive, validate=validate, named=True))
        run(settings, compare)
    except BrokenPipeError:
        raise
    except Exception as error:
        raise Reported(max(told(error, settings), ExitCode.USAGE)) from error
    if found:
        raise Reported(ExitCode.DIFFERENT)


async def _compare(session: Session, manifests: Sequence[Manifest], found: list[str], *, colours: bool) -> None:
    """Print the differences. The names of changed objects are appended to `found`."""
    session.wait_for_each(len(manifests))
    place_all(manifests, session)
    applier = Applier(session.client, dry_run=True)
    for chunk in chunks(manifests):
        for desired, preview in zip(chunk, await applier.preview(chunk), strict=True):
            if isinstance(preview, Exception):
                session.failed(preview, where(desired.manifest))
                continue
            name = reference(desired.resource, desired.obj.metadata.name)
            if lines := difference(name, preview.before, preview.after):
                found.append(name)
                out("".join(f"{line}\n" for line in (coloured(lines) if colours else lines)), styled=colours)


BATCHED = (PODS, NODES)
"""Resources with a batch call for creations."""
ROUNDS = 5
"""Maximum number of attempts for an object after conflicts and lost responses."""

Outcome = str | ApiError


class Preview(NamedTuple):
    """An object before and after it is applied; None if it does not exist."""

    before: Any
    after: Any


class Item:
    """The state of one object. `live` is the last version that was read, None if there is none. `after` is the result."""

    def __init__(self, desired: Desired) -> None:
        self.desired = desired
        self.live: Any = None
        self.after: Any = None
        self.perhaps = UNCHANGED
        """The result of an attempt whose response was lost, if it was carried out."""
        self.outcome: Outcome | None = None
        self.error: ApiError | None = None
        """The error of an attempt that is repeated."""

    def settle(self, did: str, error: ApiError | None) -> None:
        """Store the result of an attempt. `outcome` remains None if the object must be read and merged again."""
        self.error = error
        match error:
            case None:
                self.outcome = did
            case OutcomeUnknown():
                self.perhaps = did
            case AlreadyExists():
                pass
            case NotFound() if did == CONFIGURED:  # deleted in the meantime
                pass
            case Conflict() if not self.desired.obj.metadata.resourceVersion:
                pass
            case _:
                self.outcome = error

    def unread(self, error: ApiError) -> None:
        """Store the error of a failed read. After an attempt with a lost response, the result is unknown."""
        self.outcome = self.error if isinstance(self.error, OutcomeUnknown) else error


class ServerSideApplier:
    """Sends manifests unchanged. The server merges them, and creates missing objects."""

    def __init__(self, client: Client, manager: str, *, force: bool, dry_run: bool) -> None:
        self._client = client
        self._manager = manager
        self._force = force
        self._dry_run = dry_run
        self._limit = asyncio.Semaphore(AT_ONCE)

    async def apply(self, chunk: Sequence[Desired]) -> list[Outcome]:
        """Return the outcomes in order."""
        return await asyncio.gather(*map(self._apply, chunk))

    async def _apply(self, desired: Desired) -> Outcome:
        resource, metadata = desired.resource, desired.obj.metadata
        data = dict(desired.manifest.written)
        if metadata.namespace:
            data["metadata"] = {**data["metadata"], "namespace": metadata.namespace}
        async with self._limit:
            try:
                await self._client.of(resource).patch(
                    metadata.name,
                    metadata.namespace,
                    data,
                    PatchRequest.APPLY,
                    dry_run=self._dry_run,
                    field_manager=self._manager,
                    force=self._force,
                )
            except ApiError as error:
                return error
        return SERVER_SIDE_APPLIED


class Applier:
    def __init__(self, client: Client, *, dry_run: bool, warn: Callable[[str], None] = lambda text: None) -> None:
        """`warn` receives warnings about objects that are being deleted."""
        self._client = client
        self._dry_run = dry_run
        self._warn = warn
        self._limit = asyncio.Semaphore(AT_ONCE)

    async def apply(self, chunk: Sequence[Desired]) -> list[Outcome]:
        """Return the outcomes of one chunk in order. `chunks` describes the chunks."""
        items = await self._settled(chunk)
        for item in items:
            if isinstance(item.outcome, str) and item.live is not None and is_set(item.live.metadata.deletionTimestamp):
                name = reference(item.desired.resource, item.live.metadata.name)
                self._warn(f"{name} is being deleted: apply it again after the deletion")
        return [item.outcome or item.error or UNCHANGED for item in items]

    async def preview(self, chunk: Sequence[Desired]) -> list[Preview | ApiError]:
        """Return the objects before and after a dry run."""
        items = await self._settled(chunk)
        return [
            outcome if isinstance(outcome := item.outcome or item.error, ApiError) else Preview(item.live, item.after)
            for item in items
        ]

    async def _settled(self, chunk: Sequence[Desired]) -> list[Item]:
        items = [Item(desired) for desired in chunk]
        open_ = items
        for _ in range(ROUNDS):
            await self._read(open_)
            open_ = [item for item in open_ if item.outcome is None]
            new = [item for item in open_ if item.live is None]
            await asyncio.gather(self._create(new), *(self._update(item) for item in open_ if item.live is not None))
            open_ = [item for item in open_ if item.outcome is None]
            if not open_:
                break
        return items

    async def _read(self, items: Sequence[Item]) -> None:
        """Read the objects with one list for each namespace. The outcome of an unreadable object is the error."""
        by_namespace: defaultdict[str, list[Item]] = defaultdict(list)
        for item in items:
            item.live = None
            if not names.path_segment(item.desired.obj.metadata.name):  # the server rejects invalid names
                by_namespace[item.desired.obj.metadata.namespace].append(item)
        for namespace, group in by_namespace.items():
            wanted = one_of("metadata.name", (item.desired.obj.metadata.name for item in group))
            try:
                listing = await self._client.of(group[0].desired.resource).list(namespace, fields=wanted)
            except Forbidden:
                await asyncio.gather(*map(self._read_one, group))
            except ApiError as error:
                for item in group:
                    item.unread(error)
            else:
                found = {obj.metadata.name: obj for obj in listing.items}
                for item in group:
                    item.live = found.get(item.desired.obj.metadata.name)

    async def _read_one(self, item: Item) -> None:
        meta = item.desired.obj.metadata
        async with self._limit:
            try:
                item.live = await self._client.of(item.desired.resource).get(meta.name, meta.namespace)
            except NotFound:
                pass
            except ApiError as error:
                item.unread(error)

    async def _create(self, items: Sequence[Item]) -> None:
        if len(items) < 2 or self._dry_run or items[0].desired.resource not in BATCHED:
            await asyncio.gather(*map(self._create_one, items))
            return
        client = self._client.of(items[0].desired.resource)
        try:
            results = await client.create_batch([item.desired.obj for item in items])
        except Forbidden:  # forbidden in at least one of several namespaces
            await asyncio.gather(*map(self._create_one, items))
            return
        except ApiError as error:
            for item in items:
                item.settle(CREATED, error)
            return
        for item, result in zip(items, results, strict=True):
            item.settle(CREATED, error_of(result))

    async def _create_one(self, item: Item) -> None:
        client = self._client.of(item.desired.resource)
        async with self._limit:
            try:
                item.after = await client.create(item.desired.obj, dry_run=self._dry_run)
            except ApiError as error:
                item.settle(CREATED, error)
            else:
                item.settle(CREATED, None)

    async def _update(self, item: Item) -> None:
        new = merged(item.desired, item.live)
        if new is None:
            item.after = item.live
            item.settle(item.perhaps, None)
            return
        client = self._client.of(item.desired.resource)
        async with self._limit:
            try:
                item.after = await client.update(new, dry_run=self._dry_run)
            except ApiError as error:
                item.settle(CONFIGURED, error)
            else:
                did = UNCHANGED if self._is_same(item.after, item.live) else CONFIGURED
                item.settle(did if item.perhaps == UNCHANGED else item.perhaps, None)

    def _is_same(self, updated: Any, live: Any) -> bool:
        """Whether the update changed nothing, because the server's defaults restored the live object."""
        if self._dry_run:  # a dry run has no new resource version
            return bool(updated == live)
        return bool(updated.metadata.resourceVersion == live.metadata.resourceVersion)


CHUNK = 200
"""Maximum number of objects in one request."""
CREATED, CONFIGURED, UNCHANGED = "created", "configured", "unchanged"
SERVER_SIDE_APPLIED = "serverside-applied"

_SHARED = frozenset({"annotations", "finalizers", "labels", "ownerReferences"})
"""Metadata that clients can set; empty values of other metadata are ignored."""


@dataclass(frozen=True, slots=True)
class Desired:
    """The desired state of a manifest."""

    manifest: Manifest
    form: Mapping[str, Any]
    """The fields to merge into an existing object, with the last-applied annotation."""
    obj: Object
    """The object to create if it does not exist."""

    @property
    def resource(self) -> Resource[Any]:
        return self.manifest.resource


def chunks(manifests: Iterable[Manifest]) -> Iterator[list[Desired]]:
    """Yield adjacent objects of one resource, with the limits of one request and without duplicates."""
    for group in _groups(manifests):
        yield from portions(map(desired, group), CHUNK, size=lambda each: each.obj.ByteSize())


def _groups(manifests: Iterable[Manifest]) -> Iterator[list[Manifest]]:
    """Yield adjacent manifests of one resource without duplicates."""
    group, keys = list[Manifest](), set[str]()
    for manifest in manifests:
        key = manifest.resource.key_of(manifest.obj)
        if group and (key in keys or group[0].resource is not manifest.resource):
            yield group
            group, keys = [], set()
        group.append(manifest)
        keys.add(key)
    if group:
        yield group


def desired(manifest: Manifest) -> Desired:
    form = merge.with_last_applied(_wanted(manifest))
    return Desired(manifest, form, from_dict(manifest.resource, {**to_dict(manifest.obj), **form}))


def merged(desired: Desired, live: Object) -> Any | None:
    """Return the updated object, or None if the live object already matches.
    It has the live resourceVersion, or the one in the manifest, which is then a precondition.
    """
    now = to_dict(live)
    result = revised(desired.resource, live, now, merge.apply(merge.last_applied(now), now, desired.form))
    result.metadata.resourceVersion = desired.obj.metadata.resourceVersion or live.metadata.resourceVersion
    return None if to_dict(result) == now else result


def _wanted(manifest: Manifest) -> dict[str, Any]:
    """Return the fields to apply and to store in the last-applied annotation: the manifest including zeros and nulls, but
    without `status`, `creationTimestamp: null` and an empty resource version."""
    data = dict(manifest.written)
    data.pop("status", None)
    metadata = {name: value for name, value in data["metadata"].items() if value or name in _SHARED}
    for cleared in ("managedFields", "selfLink"):  # the server clears them, so each apply would be a change
        metadata.pop(cleared, None)
    if str(metadata.get("resourceVersion")) in UNSAID:
        del metadata["resourceVersion"]
    if manifest.obj.metadata.namespace:  # the namespace of the manifest or of the session
        metadata["namespace"] = manifest.obj.metadata.namespace
    return {**data, "metadata": metadata}


_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def difference(name: str, before: Object | None, after: Object | None) -> list[str]:
    """Return the lines of a unified diff, without the metadata that the server sets."""
    old, new = [None if obj is None else written(to_dict(obj)) for obj in (before, after)]
    _mask(old, new)
    return list(unified_diff(_lines(old), _lines(new), f"{name} (live)", f"{name} (applied)", lineterm=""))


def _mask(old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
    """Mask the values of a secret as kubectl does. Masks of changed values differ."""
    before, after = [(each or {}).get("data", {}) if (each or {}).get("kind") == SECRETS.kind else {} for each in (old, new)]
    for key in {*before, *after}:
        differs = key in before and key in after and before[key] != after[key]
        for values, mask in ((before, "*** (before)"), (after, "*** (after)")):
            if key in values:
                values[key] = mask if differs else "***"


def coloured(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines with colours for a terminal."""
    for line in lines:
        line = escaped(line)
        heading = line.startswith(("---", "+++"))
        yield click.style(line, bold=True) if heading else click.style(line, fg=_COLOURS.get(line[:1]))


def _lines(data: dict[str, Any] | None) -> list[str]:
    return [] if data is None else dump("yaml", data).splitlines()
