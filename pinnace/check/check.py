"""All invariants, tried on one history."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from pinnace.check import (
    bind_once,
    capacity,
    durability,
    elections,
    fencing,
    linearizable,
    liveness,
    pages,
    phases,
    run_log,
    running,
    service,
    sessions,
    watches,
    whole,
)
from pinnace.check.history import Record
from pinnace.check.index import History
from pinnace.check.verdict import Findings, Report, Verdict


@dataclass(frozen=True, slots=True)
class Checker:
    """`examine(history, *findings)`: one Findings for each of the invariants (name, statement) that it judges."""

    invariants: tuple[tuple[str, str], ...]
    examine: Callable[..., None]


def _of(module: Any) -> Checker:
    return Checker(((module.NAME, module.STATEMENT),), module.examine)


CHECKERS = (
    _of(whole),
    _of(bind_once),
    _of(capacity),
    _of(fencing),
    _of(elections),
    _of(durability),
    _of(sessions),
    _of(linearizable),
    Checker(
        ((watches.EVENTS, watches.EVENTS_STATEMENT), (watches.BOOKMARKS, watches.BOOKMARKS_STATEMENT)),
        watches.examine,
    ),
    _of(phases),
    _of(run_log),
    _of(pages),
    _of(running),
    Checker(((liveness.SETTLED, liveness.SETTLED_STATEMENT),), liveness.examine_pods),
    Checker(((liveness.LED, liveness.LED_STATEMENT),), liveness.examine_leaders),
    Checker(((service.BINDING, service.BINDING_STATEMENT),), service.examine_binds),
    Checker(((service.ANSWERING, service.ANSWERING_STATEMENT),), service.examine_answers),
    Checker(((service.OBSERVED, service.OBSERVED_STATEMENT),), service.examine_observations),
)
NAMES = tuple(name for checker in CHECKERS for name, _ in checker.invariants)


def check(records: Iterable[Record], only: Collection[str] | None = None) -> Report:
    """Judges a history. `only`: names of the invariants to try; the others are "not checked"."""
    history = History(records)
    verdicts: list[Verdict] = []
    void = _void(history)
    for checker in CHECKERS:
        found = [Findings(name, statement) for name, statement in checker.invariants]
        if only is None or any(each.name in only for each in found):
            checker.examine(history, *found)
            verdicts += [each.verdict() for each in found]
            void += [reason for each in found for reason in each.void]
        else:
            verdicts += [Verdict(each.name, each.statement, "not checked") for each in found]
    return Report(verdicts, void)


def _void(history: History) -> list[str]:
    """Why the run proves nothing."""
    reasons = []
    if not history.stored:
        reasons.append("nothing was written to etcd")
    fired = {fault.name for fault in history.faults.values() if fault.fired}
    wanted = history.run.faults if history.run else ()
    reasons += [f'fault "{name}" never fired' for name in wanted if name not in fired]
    return reasons
