"""Whether a transaction whose answer was lost has happened: by reading, and by sending again what cannot happen twice.

                        anchor: an update or delete in it                 creates only
                                     |                                         |
             send it again: at most one copy can commit           read the keys that exist now
              |            |                 |                             |           |
          Committed   Refused, anchor   Refused, anchor                 our trace   no trace
              |       still in place    has moved                          |           |
          Committed        |            look at its next version       Committed    unknown: a copy may
                   dead: Refused         |             |                            still be on its way
                   else: unknown     our trace     not ours
                                         |             |
                                     Committed      Refused (dead)

Does not promise an answer: when history is compacted, or the store silent until the deadline, the outcome stays unknown. A
trace is the bytes of *every* write of the transaction at one revision; another writer who wrote the same new bytes over the
same version is taken for us. Deletes leave no bytes, and a key that is put again as it was shows no new ones: a transaction of
nothing else is never proven by its trace. (Two API servers that take over one session do write the same, over the same version;
each may delete what it wrote itself, and must not take the other's for that.)
"""

import random
from collections.abc import Sequence

from apiserver.storage.interface import Committed, Compacted, LeaseNotFound, Refused, Storage, StorageError, Write
from apiserver.storage.outcomes import find_anchor, is_at_expected, is_dead, is_trace_of
from pinnace.runtime.backoff import Backoff
from pinnace.runtime.clock import Clock


async def resolve(
    storage: Storage, writes: Sequence[Write], clock: Clock, deadline: float, rng: random.Random
) -> Committed | Refused | None:
    """Committed: it happened. Refused: it did not and never will. None: unknown. `deadline` is monotonic, in seconds.

    Raises LeaseNotFound when it did not happen and never will because its lease is gone.
    """
    backoff = Backoff(rng=rng)
    anchor = find_anchor(writes)
    while clock.monotonic() < deadline:
        try:
            return await (_resend(storage, writes, anchor) if anchor else _find_created(storage, writes))
        except LeaseNotFound:
            raise
        except Compacted:
            return None
        except StorageError:
            await clock.sleep(backoff.next())
    return None


async def _resend(storage: Storage, writes: Sequence[Write], anchor: Write) -> Committed | Refused | None:
    answer = await storage.transact(writes)
    if isinstance(answer, Committed):
        return answer
    if is_at_expected(anchor, answer.current[anchor.key]):
        return answer if is_dead(writes, answer.current) else None
    moved = await _next_change(storage, anchor, answer.revision)
    if not await _left_trace(storage, writes, moved):
        return answer
    return Committed(moved) if await _changed_anything(storage, writes, moved) else None


async def _find_created(storage: Storage, writes: Sequence[Write]) -> Committed | None:
    for write in writes:
        state = await storage.get(write.key)
        if state is not None and await _left_trace(storage, writes, state.create_revision):
            return Committed(state.create_revision)
    return None


async def _next_change(storage: Storage, anchor: Write, later: int) -> int:
    """The revision at which the key moved on from `anchor.expected`; by `later` it had. Reads log2 of the distance."""
    before, after = anchor.expected, later
    while after - before > 1:
        middle = (before + after) // 2
        if is_at_expected(anchor, await storage.get(anchor.key, revision=middle)):
            before = middle
        else:
            after = middle
    return after


async def _left_trace(storage: Storage, writes: Sequence[Write], revision: int) -> bool:
    for write in writes:
        if not is_trace_of(write, await storage.get(write.key, revision=revision), revision):
            return False
    return True


async def _changed_anything(storage: Storage, writes: Sequence[Write], revision: int) -> bool:
    """Has a key new bytes at this revision, by a transaction that is to have left its trace there?"""
    for write in writes:
        if write.value is not None:
            before = await storage.get(write.key, revision=revision - 1)
            if before is None or before.value != write.value:
                return True
    return False
