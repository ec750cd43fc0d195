"""Planted bugs are found: the simulation, its workload and the checkers are worth something.

Here those that a few seeds find; all of them, each within 1,000 seeds, with `make simulate-bugs`.
"""

import pytest

from tests.simulation.bugs import BUGS
from tests.simulation.hunt import hunt

SEEDS = 80
BEGIN = {
    "bind-without-fence": 5,
    "bind-for-any-scheduler": 3,
    "bind-twice": 8,
    "elected-over-a-leader": 2,
    "term-ends-in-silence": 7,
    "unknown-is-done": 6,
    "unknown-is-refused": 3,
    "resend-in-doubt": 3,
    "stale-update": 6,
    "update-not-done": 4,
    "status-goes-backward": 14,
    "stale-reads": 6,
    "informer-drops-deletions": 4,
    "assumed-pods-take-no-room": 2,
    "assumed-pods-expire": 47,
    "list-of-two-snapshots": 12,
    "informer-resumes-too-late": 18,
}
"""Where the search begins: at the first seed that found the bug, unless that was 0."""
FOUND_FAST = (
    "bind-without-fence",
    "bind-for-any-scheduler",
    "bind-twice",
    "elected-over-a-leader",
    "term-ends-in-silence",
    "answer-before-commit",
    "unknown-is-done",
    "unknown-is-refused",
    "resend-in-doubt",
    "stale-update",
    "update-not-done",
    "delete-not-done",
    "status-goes-backward",
    "feed-skips-an-event",
    "dispatch-twice",
    "bookmark-too-early",
    "stale-reads",
    "informer-drops-deletions",
    "assumed-pods-take-no-room",
    "assumed-pods-expire",
    "list-of-two-snapshots",
    "informer-resumes-too-late",
)


@pytest.mark.parametrize("name", FOUND_FAST)
def test_planted_bug_is_found(name: str) -> None:
    first = BEGIN.get(name, 0)
    find = hunt(name, range(first, first + SEEDS))
    assert find.seed is not None, f"{name} ({BUGS[name].what}) escaped {SEEDS} seeds"


@pytest.mark.parametrize("name", BUGS)
def test_planting_leaves_nothing_behind(name: str) -> None:
    with BUGS[name].planted() as surgery:
        assert surgery.replaced
        assert all(vars(owner)[part] is not original for owner, part, original in surgery.replaced)
    assert all(vars(owner)[part] is original for owner, part, original in surgery.replaced)
