"""Until objects are gone: those very ones, not others that come after them under their names."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pinnace.api.resources import Object, Resource
from pinnace.cli.objects.follower import Follower
from pinnace.cli.objects.targets import Selection, reference, some_of
from pinnace.cli.session import Session
from pinnace.cli.terminal.console import note
from pinnace.cli.waiting.patience import until


@dataclass(frozen=True, slots=True)
class Doomed:
    """One object to delete. `uid`: that very one, not a namesake; empty where a name is all that is known."""

    resource: Resource[Any]
    namespace: str
    name: str
    uid: str = ""


async def wait_until_gone(session: Session, deleted: Sequence[Doomed]) -> None:
    """Of those without a uid nothing is waited for."""
    groups: defaultdict[tuple[Resource[Any], str], list[Doomed]] = defaultdict(list)
    for one in deleted:
        if one.uid:
            groups[one.resource, one.namespace].append(one)
    for (resource, namespace), left in groups.items():
        selection = Selection.named(namespace, [one.name for one in left])
        follower = Follower(session.client.of(resource), selection, note=note)

        def gone(left: list[Doomed] = left, store: Mapping[str, Object] = follower.store) -> bool:
            left[:] = [one for one in left if is_there(one, store)]
            session.waiting_for = f"{some_of([reference(one.resource, one.name) for one in left])} to go"
            return not left

        await until(session, follower, gone)


def is_there(one: Doomed, store: Mapping[str, Object]) -> bool:
    found = store.get(one.resource.key(one.namespace, one.name))
    return found is not None and found.metadata.uid == one.uid
