"""Where the commit markers stand: by that a cache that has to load everything again finds out whether the store was restored
meanwhile.

Who can resume his watch is shown the last revision again (apiserver.cacher.feed). Who cannot, as it was compacted, has two
states of the store, and nothing of what lies between: a pause; or a backup that was restored with revisions that nobody had
(`etcdutl snapshot restore --bump-revision N --mark-compacted`), or one whose history others have compacted since.

A later state of the same history has of the markers that were known

- no other one at a revision that was gone through: whatever stands there stood there before;
- none of the newer ones missing while an older one still stands: nobody but a sweeper deletes markers, and it takes the oldest
  first (apiserver.storage.sweeper).

So what breaks one of these rules is of another history. The reverse holds as long as one marker of the backup is left that
nobody has touched since: what was committed after the backup has moved or created a marker, to a place that the backup does not
have. Markers of a backup are swept ten minutes after the restore at the earliest. Who looks later is told by the note of those
that have noticed (apiserver.election.history). If nobody has, or the backup is of a store that never had an API server, the
history is taken for the same: docs/design/restore.md says what that means.
"""

from collections.abc import Iterable

from apiserver.storage.interface import Change, KeyValue


class Markers:
    def __init__(self) -> None:
        self._standing: dict[str, tuple[int, bytes]] = {}

    def reset(self, markers: Iterable[KeyValue]) -> None:
        """These there are, and no others."""
        self._standing = {marker.key: (marker.mod_revision, marker.value) for marker in markers}

    def apply(self, change: Change) -> None:
        """One was moved, or swept away."""
        if change.value is None:
            self._standing.pop(change.key, None)
        else:
            self._standing[change.key] = (change.mod_revision, change.value)

    def may_become(self, markers: Iterable[KeyValue], revision: int) -> bool:
        """Can these be of a later state of the same history? False is certain. `revision`: all up to it was applied."""
        found = {marker.key: (marker.mod_revision, marker.value) for marker in markers}
        untouched = {key: place for key, place in found.items() if place[0] <= revision}
        if not untouched.items() <= self._standing.items():
            return False
        oldest = min((at for at, _ in untouched.values()), default=revision)
        return all(key in found or at <= oldest for key, (at, _) in self._standing.items())
