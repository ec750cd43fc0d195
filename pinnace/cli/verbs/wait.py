"""`pinnace wait`: waits until objects meet a condition, or the deadline of the session ends the command.

    condition=TYPE[=STATUS]      status.conditions has the type with this status (default: True); case is ignored
    jsonpath=PATH[=VALUE]        the path finds one value: this one, or any
    create, delete               the object exists, or does not exist

As in Kubernetes, several conditions are awaited one after the other. A condition with the `observedGeneration` of an earlier
generation does not count.
Source: https://kubernetes.io/docs/reference/kubectl/generated/kubectl_wait/
"""

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import click

from pinnace.api.codec import to_dict
from pinnace.api.resources import Object
from pinnace.cli.command import verb
from pinnace.cli.jsonpath import Path, parse_path, text_of
from pinnace.cli.objects import arguments
from pinnace.cli.objects.query import Query, Selection, Target, reference, some_of
from pinnace.cli.outcomes import ExitCode, Failure, usage
from pinnace.cli.session import Session, run
from pinnace.cli.settings import WAIT_TIMEOUT, Settings
from pinnace.cli.terminal import note, out
from pinnace.cli.waiting import Follower, PendingDeletion, until, wait_until_gone

CREATE = "create"
DELETE = "delete"
_JSONPATH = re.compile(r"(?P<path>\{.*\}|(?:[^\[\]{}=]|\[[^\]]*\])+)(?:=(?P<value>.*))?", re.DOTALL)


class WaitCondition(Protocol):
    def met(self, data: Mapping[str, Any]) -> bool:
        """A condition on the JSON of an object. Raises Failure if no later version can meet it."""


@dataclass(frozen=True, slots=True)
class Condition:
    type: str
    status: str = "true"
    """Both are lowercase."""

    def met(self, data: Mapping[str, Any]) -> bool:
        status = data.get("status", {})
        for condition in status.get("conditions", ()):
            if condition.get("type", "").lower() == self.type:
                observed = condition.get("observedGeneration", status.get("observedGeneration"))
                outdated = observed is not None and observed < data["metadata"].get("generation", 0)
                return not outdated and condition.get("status", "").lower() == self.status
        return False


@dataclass(frozen=True, slots=True)
class Value:
    path: Path
    value: str | None
    """None: any value."""

    def met(self, data: Mapping[str, Any]) -> bool:
        found = self.path.find([data])
        if len(found) > 1:
            raise usage("the path finds more than one value", hint="select a single value, such as that of .items[0]")
        if not found or self.value is None:
            return bool(found)
        if isinstance(found[0], Mapping | list):
            hint = "name a field in it, or leave out the value: any will do then"
            raise usage("the path finds an object or a list, which cannot be compared with a value", hint=hint)
        return text_of(found[0]) == self.value


def in_turn(texts: Sequence[str]) -> list[WaitCondition | str]:
    """The conditions in order: CREATE first, DELETE last. Raises Failure (usage)."""
    found = sorted(map(parse_condition, texts), key=lambda wanted: wanted != CREATE)
    if DELETE in found[:-1]:
        raise usage("no condition can follow --for=delete", hint="give --for=delete last")
    return found


def parse_condition(text: str) -> WaitCondition | str:
    """CREATE and DELETE are returned as they are. Raises Failure (usage)."""
    kind, _, rest = text.partition("=")
    if text in (CREATE, DELETE):
        return text
    if kind == "condition" and rest:
        name, said, status = rest.lower().partition("=")
        if name and (status or not said):
            return Condition(name, status or "true")
    if kind == "jsonpath" and (match := _JSONPATH.fullmatch(rest)) is not None and match["value"] != "":
        value = match["value"]
        return Value(parse_path(match["path"]), None if value is None else value.strip("'\""))
    hint = "condition=TYPE[=STATUS], jsonpath=PATH[=VALUE], create or delete"
    raise usage(f'--for: "{text}" is not a condition', hint=hint)


@verb(
    "wait",
    examples="""
        pinnace wait --for=condition=Ready pod/a pod/b --timeout 2m
        pinnace wait --for=condition=Ready=False nodes --all
        pinnace wait --for=jsonpath='{.status.phase}'=Running pods -l app=web
        pinnace wait --for=create --for=condition=Available deployment/web
        pinnace wait --for=delete pods -l app=web
    """,
)
@arguments.what
@arguments.all_namespaces
@arguments.selector
@arguments.field_selector
@click.option("--all", "every", is_flag=True, help="Select all resources of the kind in the namespace.")
@click.option(
    "--for",
    "wanted",
    required=True,
    multiple=True,
    metavar="CONDITION",
    shell_complete=arguments.one_of(
        "condition=Ready", "condition=Available", "condition=Complete", CREATE, DELETE, "jsonpath="
    ),
    help="condition=TYPE[=STATUS], jsonpath=PATH[=VALUE], create or delete. Several conditions are waited for in order.",
)
@click.option(
    "--timeout",
    type=WAIT_TIMEOUT,
    metavar="DURATION",
    help="How long to wait, such as 10s or 2m. Zero checks once and does not wait; negative waits for a week.",
)
def wait(
    settings: Settings,
    what: tuple[str, ...],
    all_namespaces: bool,
    selector: str,
    field_selector: str,
    every: bool,
    wanted: tuple[str, ...],
    timeout: float | None,
) -> None:
    """Wait for a specific condition on one or many resources.

    The default timeout is 30 s; the exit code is 6 when it expires. A selector is evaluated once, at the beginning. An object
    that does not exist or that is deleted meanwhile is an error, unless --for waits for it.
    """
    if timeout is not None:
        settings.timeout = timeout
    query = Query.of(what, all_namespaces=all_namespaces, labels=selector, fields=field_selector, every=every)
    if not (every or selector or field_selector or all(target.names for target in query.targets)):
        raise usage("you must specify resources", hint="name them, select them with -l or --field-selector, or say --all")
    conditions = in_turn(wanted)

    async def wait_for_all(session: Session) -> None:
        for target in query.targets:
            await wait_for(session, query, target, conditions)

    run(settings, wait_for_all)


async def wait_for(session: Session, query: Query, target: Target, wanted: Sequence[WaitCondition | str]) -> None:
    """Waits for the objects of one target, and prints a line for each object and condition. `wanted`: see `conditions.in_turn`.
    A selector is evaluated at the beginning, except for `create`, which waits for all named objects or one selected object. A
    missing named object is reported.
    """
    created = await _created(session, query, target) if CREATE in wanted else None
    if conditions := [each for each in wanted if not isinstance(each, str)]:
        await _so(session, query, target, conditions, created)
    if DELETE in wanted:
        await _gone(session, target, await _there(session, query, target))


async def _there(session: Session, query: Query, target: Target) -> dict[str, Object]:
    """By key."""
    where = query.selection(target, session)
    listing = await session.client.of(target.resource).list(where.namespace, labels=where.labels, fields=where.fields)
    return {target.resource.key_of(obj): obj for obj in listing.items}


async def _so(
    session: Session, query: Query, target: Target, conditions: Sequence[WaitCondition], created: dict[str, Object] | None
) -> None:
    """`created`: the objects that existed when their creation was awaited. They are awaited even if they have been deleted
    since.
    """
    namespace = query.namespace(target.resource, session)
    found = await _there(session, query, target) if created is None else created
    for name in target.names:
        if target.resource.key(namespace, name) not in found:
            session.failed(_missing(f'{target.resource.plural} "{name}" not found'))
    if not target.names and not found:
        raise _missing(f"no matching {target.resource.plural} found")
    await _met(session, target, namespace, found, conditions)


async def _created(session: Session, query: Query, target: Target) -> dict[str, Object]:
    """By key."""
    follower: Follower[Any] = Follower(session.client.of(target.resource), query.selection(target, session), note=note)

    def there() -> bool:
        names = {obj.metadata.name for obj in follower.store.values()}
        left = [name for name in target.names if name not in names]
        session.waiting_for = f"{_shown(target, left) if left else target.resource.plural} to be created"
        return not left and bool(names)

    await until(session, follower, there)
    created = {target.resource.key_of(obj): obj for obj in follower.store.values()}
    for obj in created.values():
        _tell(target, obj)
    return created


async def _gone(session: Session, target: Target, found: dict[str, Object]) -> None:
    """Waits for the deletion of these objects. A missing object counts as deleted."""
    metas = [obj.metadata for obj in found.values()]
    await wait_until_gone(session, [PendingDeletion(target.resource, meta.namespace, meta.name, meta.uid) for meta in metas])
    for obj in found.values():
        _tell(target, obj)


async def _met(
    session: Session, target: Target, namespace: str, left: dict[str, Object], conditions: Sequence[WaitCondition]
) -> None:
    """Waits by name, not by selector: an object that no longer matches is still awaited, and so is a new object of the same
    name, as in kubectl.
    """
    to_come = {key: deque(conditions) for key in left}
    names = [obj.metadata.name for obj in left.values()]
    follower: Follower[Any] = Follower(session.client.of(target.resource), Selection.named(namespace, names), note=note)

    def done() -> bool:
        for key, before in list(left.items()):
            obj = follower.store.get(key)
            if obj is not None and obj.metadata.uid != before.metadata.uid:  # replaced by a new object of the same name
                left[key], to_come[key] = obj, deque(conditions)
            if obj is not None and _has_all(target, obj, to_come[key]):
                del left[key]
        session.waiting_for = f"the condition on {_shown(target, [obj.metadata.name for obj in left.values()])}"
        return not left

    if left:
        await until(session, follower, done)


def _has_all(target: Target, obj: Object, to_come: deque[WaitCondition]) -> bool:
    """Prints and removes objects that meet the condition."""
    data = to_dict(obj)
    while to_come and to_come[0].met(data):
        to_come.popleft()
        _tell(target, obj)
    return not to_come


def _tell(target: Target, obj: Object) -> None:
    out(f"{reference(target.resource, obj.metadata.name)} condition met\n")


def _shown(target: Target, names: list[str]) -> str:
    return some_of([reference(target.resource, name) for name in names])


def _missing(message: str) -> Failure:
    return Failure(message, code=ExitCode.NOT_FOUND)
