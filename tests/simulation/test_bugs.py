"""Planted bugs are found: the simulation, its workload and the checkers are worth something.

Here those that a few seeds find; all of them, each within 1,000 seeds, with `make simulate-bugs`.
"""

import pytest

from tests.simulation.bugs import BUGS
from tests.simulation.hunt import hunt

SEEDS = 80
BEGIN = {
    "assumed-pods-expire": 40,
    "bind-twice": 8,
    "informer-resumes-too-late": 18,
    "list-of-two-snapshots": 12,
    "term-ends-in-silence": 7,
    "status-goes-backward": 14,
}
"""Where the search begins, when the first seed that finds a bug comes late."""
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
