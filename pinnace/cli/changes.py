"""Changes to existing objects: the requests of `label`, `annotate`, `taint`, `cordon` and `uncordon`, and
deletions.

An update is conditional on the resource version that was read, and is retried on a conflict. The arguments `key=value` set a
value and `key-` removes it, as with kubectl.

Objects are deleted in batches where the API has batch calls.
"""

import asyncio
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pinnace.api import names
from pinnace.api.core_v1_pb2 import Node, Taint
from pinnace.api.pods import EFFECTS
from pinnace.api.resources import NODES, PODS, Object
from pinnace.cli.objects.query import AT_ONCE, Query, fetch, reference
from pinnace.cli.outcomes import ExitCode, Failure, usage
from pinnace.cli.session import Session, run
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import note, one_line, out
from pinnace.cli.waiting import PendingDeletion, wait_until_gone
from pinnace.client.errors import ApiError, Conflict, NotFound, error_of
from pinnace.client.resource import ResourceClient, delete_request, retry_on_conflict

T = TypeVar("T", bound=Object)

Change = Callable[[Any], str]
"""Modifies an object in place and returns the result for the output, such as "labeled". It is called again with a newer version
after a conflict. It raises Failure if the object cannot be changed, and leaves the object unmodified if there is nothing to
do."""


async def change_each(session: Session, query: Query, change: Change, *, needed: bool = False) -> None:
    """Change the objects of a query and print a line for each. After an error the remaining objects are still changed. If a
    selector matches no object: print a note, or raise Failure if `needed`."""
    found = False
    limit = asyncio.Semaphore(AT_ONCE)
    for target in query.targets:
        client = session.client.of(target.resource)

        async def one(obj: Object, client: ResourceClient[Any] = client) -> str | Exception:
            async with limit:
                try:
                    return await change_one(client, obj, change)
                except (ApiError, Failure) as error:
                    return error

        objs = await fetch(session, query, target)
        found = found or bool(objs)
        for obj, outcome in zip(objs, await asyncio.gather(*map(one, objs)), strict=True):
            name = reference(target.resource, obj.metadata.name)
            if isinstance(outcome, Exception):
                session.failed(outcome, where=name if isinstance(outcome, Failure) else "")
            else:
                out(f"{name} {outcome}\n")
    if query.selects and not found:
        if needed:
            raise query.unmatched()
        note("no resources found: nothing was changed")


async def change_one(client: ResourceClient[T], obj: T, change: Change) -> str:
    """Return the result of `change` for the stored version. Raises ApiError, and the errors of `change`."""
    said = ""

    def alter(new: T) -> None:
        nonlocal said
        said = change(new)

    await retry_on_conflict(client, obj, alter)
    return said


def change_nodes(settings: Settings, nodes: Sequence[str], selector: str, change: Change) -> None:
    """Change the named or selected nodes. Raises Failure if there are none."""
    if not nodes and not selector:
        raise usage("you must specify a node", hint="specify node names, or a selector with -l")
    names = [name.removeprefix("node/") for name in nodes]
    query = Query.of([NODES.plural, *names], labels=selector)
    run(settings, lambda session: change_each(session, query, change, needed=True))


def marking(*, unschedulable: bool) -> Change:
    word = "cordoned" if unschedulable else "uncordoned"

    def change(node: Node) -> str:
        if node.spec.unschedulable == unschedulable:
            return f"already {word}"
        node.spec.unschedulable = unschedulable
        return word

    return change


OVERWRITE = "use --overwrite to replace the value"


@dataclass(frozen=True, slots=True)
class Pairs:
    """The terms and the validation of labels or of annotations."""

    one: str
    done: str
    """The result if at least one value was set."""
    undone: str
    """The result if values were only removed."""
    check_key: Callable[[str], Sequence[str]]
    check_value: Callable[[str], Sequence[str]]
    """`check_key` and `check_value` return validation errors."""


LABELS = Pairs("label", "labeled", "unlabeled", names.label_key, names.label_value)
ANNOTATIONS = Pairs("annotation", "annotated", "annotated", lambda key: names.label_key(key.lower()), lambda value: ())
"""The rules of the API server: the prefix of an annotation key may contain capitals, and the value is not restricted."""


@dataclass(frozen=True, slots=True)
class PairEdits:
    """Labels or annotations to set, and keys to remove."""

    set: dict[str, str]
    remove: tuple[str, ...]
    pairs: Pairs

    @classmethod
    def parse(cls, words: Sequence[str], pairs: Pairs) -> "PairEdits":
        """Parse the arguments. Raises Failure: usage for a syntax error, invalid for an invalid key or value."""
        added: dict[str, str] = {}
        removed: list[str] = []
        for word in words:
            key, equals, value = word.partition("=")
            if not equals and word.endswith("-"):
                key = word[:-1]
                removed.append(key)
            elif equals and key not in added:
                added[key] = value
            elif equals:
                raise usage(f'{pairs.one} "{key}" is specified more than once')
            else:
                raise usage(f'"{word}": expected KEY=VALUE to set or KEY- to remove')
            _check(f'{pairs.one} key "{key}"', pairs.check_key(key))
            _check(f'{pairs.one} value "{value}"', pairs.check_value(value))
        if both := added.keys() & removed:
            raise usage(f'{pairs.one} "{min(both)}" cannot be set and removed in the same command')
        return cls(added, tuple(removed), pairs)

    def apply(self, present: MutableMapping[str, str], *, overwrite: bool) -> str:
        """Change the labels or annotations of one object. Raises Failure (conflict) if a key already has another value."""
        for key, value in self.set.items():
            if not overwrite and present.get(key, value) != value:
                message = f'{self.pairs.one} "{key}" already has a value ({present[key]})'
                raise Failure(message, hint=OVERWRITE, code=ExitCode.CONFLICT)
        before = dict(present)
        present.update(self.set)
        for key in self.remove:
            present.pop(key, None)
        if dict(present) == before:
            return f"not {self.pairs.done} (nothing to change)"
        return self.pairs.done if self.set else self.pairs.undone


def pairs_of(flag: str, words: Sequence[str]) -> dict[str, str]:
    """Parse NAME=VALUE arguments. `flag` is the prefix of error messages. Raises Failure (usage)."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise usage(f'{flag}: "{word}": expected NAME=VALUE')
        if name in found:
            raise usage(f'{flag}: "{name}" is specified more than once')
        found[name] = value
    return found


@dataclass(frozen=True, slots=True)
class TaintEdits:
    """Taints to set, at most one for each key and effect, and (key, effect) pairs to remove. An empty effect matches every
    effect."""

    set: tuple[Taint, ...]
    remove: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, words: Sequence[str]) -> "TaintEdits":
        """Parse the arguments. Raises Failure: usage for a syntax error, invalid for an invalid key, value or effect."""
        added: list[Taint] = []
        removed: list[tuple[str, str]] = []
        for word in words:
            front, colon, effect = word.removesuffix("-").partition(":")
            key, _, value = front.partition("=")
            if word.endswith("-"):
                removed.append((key, effect))
            elif not colon:
                raise usage(f'"{word}": expected KEY=VALUE:EFFECT or KEY:EFFECT to set, KEY:EFFECT- or KEY- to remove')
            elif any((taint.key, taint.effect) == (key, effect) for taint in added):
                raise usage(f'taint "{key}:{effect}" is specified more than once')
            else:
                added.append(Taint(key=key, value=value, effect=effect))
            _check(f'taint key "{key}"', names.label_key(key))
            _check(f'taint value "{value}"', names.label_value(value))
            if colon and effect not in EFFECTS:
                _check(f'taint effect "{effect}"', (f"must be {', '.join(EFFECTS[:-1])} or {EFFECTS[-1]}",))
        for taint in added:
            if any(key == taint.key and effect in ("", taint.effect) for key, effect in removed):
                raise usage(f'taint "{taint.key}:{taint.effect}" cannot be set and removed in the same command')
        return cls(tuple(added), tuple(removed))

    def apply(self, node: Node, *, overwrite: bool) -> str:
        """Change one node. Raises Failure: conflict if the taint already has another value, not found if a taint to remove is
        missing."""
        taints = list(node.spec.taints)
        for key, effect in self.remove:
            kept = [taint for taint in taints if not (taint.key == key and effect in ("", taint.effect))]
            if len(kept) == len(taints):
                raise Failure(f'taint "{key}{":" if effect else ""}{effect}" not found', code=ExitCode.NOT_FOUND)
            taints = kept
        for new in self.set:
            old = next((taint for taint in taints if (taint.key, taint.effect) == (new.key, new.effect)), None)
            if old is None:
                taints.append(new)
            elif not overwrite:
                message = f'taint "{new.key}:{new.effect}" already has a value ({old.value})'
                raise Failure(message, hint=OVERWRITE, code=ExitCode.CONFLICT)
            elif old.value != new.value:
                taints[taints.index(old)] = new
        if taints == list(node.spec.taints):
            return "not changed"
        del node.spec.taints[:]
        node.spec.taints.extend(taints)
        return "modified" if self.set and self.remove else "tainted" if self.set else "untainted"


def _check(what: str, wrong: Sequence[str]) -> None:
    if wrong:
        raise Failure(f"{what}: {wrong[0]}", hint="nothing was changed", code=ExitCode.INVALID)


BATCHED = (PODS, NODES)
"""Resources with a batch call for deletions."""
BATCH = 200
WAIT = 120.0
"""Seconds to wait for deletions if --timeout is not set. It exceeds the default grace period of pods, 30 s."""


CLIENT, SERVER = "client", "server"
SAID = {CLIENT: " (dry run)", SERVER: " (server dry run)"}
"""Suffixes of the output lines, as in kubectl."""


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    grace: int | None
    """Grace period in seconds; None: the default of the object."""
    ignore_not_found: bool
    wait: bool
    propagation: str = ""
    """The propagation policy for dependents, as in DeleteOptions."""
    dry_run: str = "none"
    """ "none"; CLIENT: only read the objects; SERVER: send dry-run requests. Dry runs delete nothing."""


async def delete_all(session: Session, doomed: Sequence[PendingDeletion], how: DeleteOptions) -> None:
    """Delete objects, print a line for each, and wait until they are gone."""
    session.wait_for_each(len(doomed))
    deleted, said = list[PendingDeletion](), SAID.get(how.dry_run, "")
    with session.progress("deleting", len(doomed)) as advance:
        for start in range(0, len(doomed), BATCH):
            batch = doomed[start : start + BATCH]
            for one, outcome in zip(batch, await _delete(session, batch, how), strict=True):
                if isinstance(outcome, str):
                    out(f"{_told(one, how)}\n")
                    deleted.append(replace(one, uid=outcome))
                elif not (isinstance(outcome, NotFound) and how.ignore_not_found):
                    session.failed(outcome)
            advance(len(batch))
    if how.wait and deleted and not said:
        session.wait_up_to(WAIT)
        await wait_until_gone(session, deleted)


def _told(one: PendingDeletion, how: DeleteOptions) -> str:
    """Return kubectl's output line. It contains the namespace, because a query can select objects of several namespaces."""
    done = f"{'force ' * (how.grace == 0)}deleted{f' from {one.namespace} namespace' * one.resource.namespaced}"
    return f'{reference(one.resource, "").rstrip("/")} "{one_line(one.name)}" {done}{SAID.get(how.dry_run, "")}'


async def _delete(session: Session, batch: Sequence[PendingDeletion], how: DeleteOptions) -> list[str | ApiError]:
    """Return for each object its uid, an empty string if it was already gone, or the error."""
    limit, dry_run = asyncio.Semaphore(AT_ONCE), how.dry_run == SERVER
    resource = batch[0].resource
    if how.dry_run != CLIENT and len(batch) > 1 and resource in BATCHED and all(one.resource is resource for one in batch):
        requests = [
            delete_request(one.name, one.namespace, grace=how.grace, uid=one.uid, propagation=how.propagation, dry_run=dry_run)
            for one in batch
        ]
        items = await session.client.of(resource).delete_batch(requests)
        return [
            _outcome(one, error) if (error := error_of(item)) is not None else item.uid
            for one, item in zip(batch, items, strict=True)
        ]

    async def delete(one: PendingDeletion) -> str | ApiError:
        async with limit:
            try:
                client = session.client.of(one.resource)
                if how.dry_run == CLIENT:
                    return str((await client.get(one.name, one.namespace)).metadata.uid)
                obj: Object = await client.delete(
                    one.name, one.namespace, grace=how.grace, uid=one.uid, propagation=how.propagation, dry_run=dry_run
                )
            except ApiError as error:
                return _outcome(one, error)
            return obj.metadata.uid

    return await asyncio.gather(*map(delete, batch))


def _outcome(one: PendingDeletion, error: ApiError) -> str | ApiError:
    """A deletion with a uid succeeds if that object no longer exists."""
    gone = isinstance(error, NotFound) or (isinstance(error, Conflict) and error.reason == "UIDMismatch")
    return "" if one.uid and gone else error
