"""I12: the pages of one list are one snapshot.

All pages of a list name the revision of the first. Each page shows exactly what was there at that revision, between the last
key of the page before and its own last key (or the end of the list). Lists of one page are lists too.
A selector that facts do not decide: every object that is shown must have been there so; what is left out is not judged.
"""

from functools import partial

from pinnace.check.history import Call, Stored
from pinnace.check.index import History
from pinnace.check.selection import Selection
from pinnace.check.snapshots import Look, State, visit
from pinnace.check.verdict import Findings

NAME, STATEMENT = "I12", "the pages of one list are one snapshot"


def examine(history: History, found: Findings) -> None:
    looks = []
    before: dict[tuple[str, int], Call] = {}  # the page before, by (client, id of the list)
    for call in sorted((call for call in history.calls if call.verb == "list" and call.outcome == "ok"), key=lambda c: c.began):
        found.examined += 1
        previous = before.get((call.client, call.of))
        before[call.client, call.of] = call
        if call.of not in (0, call.id) and previous is None:
            continue  # the first page is not in this history
        if previous is not None and previous.snapshot != call.snapshot:
            text = f"{_name(call)}: shows revision {call.snapshot}, the page before showed {previous.snapshot}"
            found.violated(text, revision=call.snapshot, at=call.ended)
            continue
        looks.append(Look(call.snapshot, partial(_compare, found, call, _last_key(previous))))
    visit(history, looks)


def _last_key(page: Call | None) -> str:
    return page.items[-1].key if page is not None and page.items else ""


def _compare(found: Findings, call: Call, after: str, state: State) -> None:
    selection = Selection(call.prefix, call.selection)
    upto = _last_key(call) if call.more else ""
    there = state.range(call.prefix, after, upto)
    if selection.judged:
        expected = {stored.key: stored for stored in there if selection.selects(stored)}
    else:
        shown = {item.key for item in call.items}
        expected = {stored.key: stored for stored in there if stored.key in shown}
    for problem in _differences(call, expected):
        found.violated(f"{_name(call)}: {problem}", revision=call.snapshot, at=call.ended)


def _differences(call: Call, expected: dict[str, Stored]) -> list[str]:
    problems = []
    last = ""
    for item in call.items:
        if item.key <= last:
            problems.append(f"{item.key} comes after {last}")
        last = item.key
        stored = expected.pop(item.key, None)
        if stored is None:
            problems.append(f"{item.key} was not there at revision {call.snapshot}")
        elif stored.revision != item.revision:
            problems.append(f"{item.key} is shown at revision {item.revision}, at {call.snapshot} it was at {stored.revision}")
        elif item.digest and item.digest != stored.digest:
            problems.append(f"{item.key} at revision {item.revision} is shown with other content than is stored")
    problems += [f"{key} is left out; it was there since revision {stored.revision}" for key, stored in expected.items()]
    return problems


def _name(call: Call) -> str:
    selected = f" ({call.selection})" if call.selection else ""
    return f"list #{call.id} of {call.prefix}{selected} by {call.client} from {call.server}"
