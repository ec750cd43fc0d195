"""What a reader of watches can live through: a history, and where and when it stops and resumes; and was it told right?"""

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import PODS
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.cacher.store import RevisionExpired
from pinnace.apiserver.storage.interface import Storage
from tests.unit.cacher import world as world_module
from tests.unit.cacher.world import CASES, Case, Reader, World, pod, running

BOOKMARKS = 0.004
"""Seconds between bookmarks: often, so that many are checked."""

States = st.one_of(
    st.none(),
    st.tuples(st.sampled_from(["", "n1", "n2", "n3"]), st.sampled_from(["", "web", "db"])),
)
Revision = dict[tuple[str, str], tuple[str, str] | None]
REVISIONS: st.SearchStrategy[Revision] = st.dictionaries(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["default", "other"])), States, min_size=1, max_size=3
)


@dataclass(frozen=True)
class Plan:
    """A history, part of it before the servers start; and how a reader goes about it."""

    before: list[Revision]
    steps: list[list[Revision]]
    """Between two steps the reader may stop and resume."""
    case: Case
    resumes: list[int]
    """For each step, what the reader does before it: 0 nothing, 1 resume on the first server, 2 on the second."""
    from_state: bool
    """Begin with the initial state, not at a revision."""
    chunk: int
    hurried: bool
    """Is the time of each step of the past over as soon as it has begun?"""
    ring: int
    reads: list[int]
    """For each step, how many responses are read after it; 9 is all."""


PLANS = st.builds(
    Plan,
    before=st.lists(REVISIONS, max_size=4),
    steps=st.lists(st.lists(REVISIONS, max_size=3), min_size=1, max_size=4),
    case=st.sampled_from(CASES),
    resumes=st.lists(st.integers(0, 2), min_size=4, max_size=4),
    from_state=st.booleans(),
    chunk=st.integers(1, 3),
    hurried=st.booleans(),
    ring=st.sampled_from([2, 8, 1000]),
    reads=st.lists(st.sampled_from([0, 1, 9]), min_size=4, max_size=4),
)


async def write(world: World, revisions: Sequence[Revision]) -> int:
    """Commits each; deletes of what is not there, and revisions without a write, are left out."""
    last = await world.storage.current_revision()
    for revision in revisions:
        changes: dict[str, Pod | None] = {}
        for (name, namespace), state in revision.items():
            key = PODS.key(namespace, name)
            if state is not None:
                changes[key] = pod(name, namespace, node=state[0], app=state[1])
            elif await world.storage.get(key) is not None:
                changes[key] = None
        if changes:
            last = await world.commit(changes)
    return last


async def run(plan: Plan, storage: Storage) -> None:
    """Raises AssertionError when the reader was told anything but the history."""
    world = World(storage)
    begin = await storage.current_revision()
    await write(world, plan.before)
    servers = [Cacher(storage, log_events=plan.ring, bookmark_interval=BOOKMARKS) for _ in range(2)]
    async with running(servers[0]), running(servers[1]):
        start = 0 if plan.from_state else max(begin, servers[0].revision - len(plan.before))
        try:
            readers = [_open(servers[0], plan.case, start)]
            for resume, revisions, reads in zip(plan.resumes, plan.steps, plan.reads, strict=False):
                position = readers[-1].revision
                if resume and position:
                    readers[-1].watcher.close()
                    await servers[resume - 1].wait_for(position, world_module.DEADLINE)
                    readers.append(_open(servers[resume - 1], plan.case, position))
                last = await write(world, revisions)
                if reads == 9:
                    await readers[-1].until(last)
                else:
                    for _ in range(reads):
                        await readers[-1].read()
            await readers[-1].until(await storage.current_revision())
        except RevisionExpired:
            assert plan.ring < 1000, "the ring reaches back to the start"
            return
        first, last = readers[0].snapshot, readers[-1].revision
        assert [event for reader in readers for event in reader.events] == world.events(plan.case.predicate, first, last)
        if plan.from_state:
            assert readers[0].initial == list(world.state(first, plan.case.predicate))


def _open(server: Cacher, case: Case, since: int) -> Reader:
    return Reader(server.cache_of(PODS).watch(case.selection, since or None), since)
