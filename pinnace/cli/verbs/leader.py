"""`pinnace leader`: shows the leader and the terms of an election, and transfers the leadership.

The end of a term is presumed if no process recorded it. Its time is then an upper bound, and the gap after it is unknown.
"""

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import click

from pinnace.api.elections_pb2 import Election, Term
from pinnace.api.meta_v1_pb2 import MicroTime
from pinnace.api.scalars import format_rfc3339, to_seconds
from pinnace.api.terms import TermEnd
from pinnace.api.wellknown import CONTROLLERS_ELECTION, SCHEDULER_ELECTION
from pinnace.cli.command import DefaultGroup, did_you_mean, verb
from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.output import documents
from pinnace.cli.session import Session, run
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import Table, note, out
from pinnace.client.errors import NotFound, Unavailable
from pinnace.printers.columns import NONE, format_age, human_duration

HEADERS = ("ELECTION", "HOLDER", "TOKEN", "SINCE", "WAITING")
USUAL = SCHEDULER_ELECTION
"""The default election."""
REAL = (SCHEDULER_ELECTION, CONTROLLERS_ELECTION)
"""Elections of every cluster, even if they never had a leader."""
POLL = 0.2
"""Seconds between two requests of a watch."""


@click.group("leader", cls=DefaultGroup, default="show")
def leader() -> None:
    """Show the leader and the history of an election, or transfer the leadership.

    The elections are "scheduler", "controllers", and those of your own schedulers. `pinnace leader list` lists all elections
    that have a leader. `pinnace leader [ELECTION]` is short for `pinnace leader show`.
    """


@verb(
    "show",
    examples="""
        pinnace leader                          # the leading scheduler
        pinnace leader -w                       # and its successors
        pinnace leader -o json | jq -r .holder
    """,
)
@click.argument("election", default=USUAL)
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), help="The output format. The default is a table.")
@click.option("-w", "--watch", is_flag=True, help="After listing, watch for changes until interrupted or --timeout.")
def show(settings: Settings, election: str, output: str | None, watch: bool) -> None:
    """Show the leader of an election.

    The token is the fencing token: it grows with every leader, and a write by the leader commits only while its token is the
    latest. The exit code is 3 when there is no leader.
    """
    if watch:
        run(settings, lambda session: session.watch(follow(session, election, output)))
    else:
        run(settings, lambda session: print_leader(session, election, output))


@verb("list", examples="pinnace leader list")
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), help="The output format. The default is a table.")
def list_(settings: Settings, output: str | None) -> None:
    """List all elections that have a leader: those of the schedulers, of the controllers and of your own schedulers.

    WAITING lists the standby candidates in the order in which they joined.

    The exit code is 3 when no election has a leader.
    """
    run(settings, lambda session: print_all(session, output))


@verb(
    "history",
    examples="""
        pinnace leader history                  # of the schedulers, the present leader last
        pinnace leader history -o json | jq '.items[].reason'
    """,
)
@click.argument("election", default=USUAL)
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), help="The output format. The default is a table.")
def history(settings: Settings, election: str, output: str | None) -> None:
    """Show the last 100 terms of an election, the current one last.

    GAP is the time without a leader: from when the end of a term was detected until the next leader was elected. OUTAGE is the
    time without a working leader: from the last heartbeat of the leader until the next leader was elected. A frozen leader, for
    example, sends no heartbeats, but its term lasts until an API server ends it. Times are those of the API servers.

    A reason with a question mark is presumed: no process recorded the end. The term ended at TO at the latest, and both times
    are unknown.
    """
    run(settings, lambda session: print_history(session, election, output))


@verb(
    "transfer",
    examples="""
        pinnace leader transfer                 # to any standby candidate
        pinnace leader transfer --to scheduler-1
    """,
)
@click.argument("election", default=USUAL)
@click.option("--to", metavar="HOLDER", default="", help="The candidate that is to lead. By default, any standby candidate.")
def transfer(settings: Settings, election: str, to: str) -> None:
    """End the current term in favor of another candidate.

    The leader is deposed only after the other candidate has answered. Otherwise the leader stays, and the exit code is 3.
    """
    run(settings, lambda session: move(session, election, to))


leader.add_command(show)
leader.add_command(list_)
leader.add_command(transfer)
leader.add_command(history)


async def move(session: Session, election: str, to: str) -> None:
    try:
        answer = await session.client.elections.transfer(election, to)
    except NotFound as error:
        if error.reason == "NoCandidate":
            raise
        raise await _no_leader_error(session, election, "name the next leader with --to") from error
    before, after = answer.before, answer.after
    if after == before:
        out(f"{after.holder} leads already, with token {after.token}\n")
        return
    if not after.holder:
        message = f'{before.holder} no longer leads, and election "{election}" has no leader yet'
        raise Failure(message, hint="`pinnace leader -w` waits for a leader", code=ExitCode.UNAVAILABLE)
    gap = f"{short(answer.gap_micros / 1e6)} without a leader"
    out(f"{after.holder} leads with token {after.token}, after {before.holder} with token {before.token}: {gap}\n")
    if to and after.holder != to:
        raise Failure(f"{to} was nominated, but {after.holder} leads", hint="try again", code=ExitCode.CONFLICT)


async def print_history(session: Session, election: str, form: str | None) -> None:
    terms = await session.client.elections.history(election)
    if not terms:
        raise Failure(f'election "{election}" has had no leader yet', hint=_hint_for_word(election), code=ExitCode.NOT_FOUND)
    out(documents.dump(form, {"items": records(terms)}) if form else Table(TERM_HEADERS).render(rows(terms)))


async def print_leader(session: Session, election: str, form: str | None) -> None:
    result = await _get_election(session, election)
    if not result.holder:
        raise await _no_leader_error(session, election)
    out(documents.dump(form, document(result)) if form else Table(HEADERS).render([row(result, time.time())]))


async def print_all(session: Session, form: str | None) -> None:
    led, now = await session.client.elections.list(), time.time()
    if not led:
        raise Failure("no election has a leader", hint="`pinnace status` shows which processes run", code=ExitCode.NOT_FOUND)
    shown = documents.dump(form, {"items": [document(election) for election in led]}) if form else ""
    out(shown or Table(HEADERS).render([row(election, now) for election in led]))


async def follow(session: Session, election: str, form: str | None) -> None:
    """Prints each leader, and each gap that is long enough to be observed."""
    table = Table(HEADERS)
    last: tuple[str, int] | None = None
    lost = False
    while True:
        try:
            result = await _get_election(session, election)
        except Unavailable as error:
            if not lost:
                note(f"connection lost ({error.message}): retrying")
            lost = True
        else:
            lost = False
            if (result.holder, result.token) != last:
                last = (result.holder, result.token)
                out(_line(result, form) if form else table.render([row(result, time.time())]))
        await asyncio.sleep(POLL)


async def _no_leader_error(session: Session, election: str, hint: str = "") -> Failure:
    watch = f"pinnace leader{'' if election == USUAL else f' {election}'} -w"
    way = f"`pinnace status` shows which processes run; `{watch}` waits for a leader"
    known = election in REAL or bool(await session.client.elections.history(election))
    return Failure(
        f'election "{election}" has no leader',
        hint=way if known else "; ".join(filter(None, (_hint_for_word(election), hint))),
        code=ExitCode.NOT_FOUND,
    )


def _hint_for_word(election: str) -> str:
    """A hint for a word that may not be meant as an election."""
    if election in REAL:
        return ""
    meant = did_you_mean(election, list(leader.commands))
    return f'"{election}" was taken for an election{meant}; `pinnace leader list` shows those that are led'


async def _get_election(session: Session, election: str) -> Election:
    """Without a holder if there is no leader."""
    try:
        return await session.client.elections.get(election)
    except NotFound:
        return Election(name=election)


def row(election: Election, now: float) -> tuple[str, ...]:
    if not election.holder:
        return election.name, "<none>", "", "", ""
    waiting = ",".join(candidate.holder for candidate in election.candidates) or NONE
    return election.name, election.holder, str(election.token), format_age(election.since, now), waiting


def document(election: Election) -> dict[str, Any]:
    result: dict[str, Any] = {"election": election.name, "holder": election.holder, "token": election.token}
    if election.holder:
        result["waiting"] = [candidate.holder for candidate in election.candidates]
    return result | ({"since": format_rfc3339(election.since)} if election.HasField("since") else {})


def _line(election: Election, form: str) -> str:
    """One document of several."""
    return json.dumps(document(election)) + "\n" if form == "json" else "---\n" + documents.dump(form, document(election))


TERM_HEADERS = ("HOLDER", "TOKEN", "FROM", "TO", "LASTED", "WHY IT ENDED", "GAP", "OUTAGE")


def rows(terms: Sequence[Term]) -> list[tuple[str, ...]]:
    return [
        (
            term.holder,
            str(term.token),
            moment(term.began),
            moment(term.ended) if term.HasField("ended") else "",
            "<=" * term.presumed + short(to_seconds(term.ended) - to_seconds(term.began)) if term.HasField("ended") else "",
            (term.reason + "?" * term.presumed) if term.HasField("ended") else "leads",
            *("" if seconds is None else short(seconds) for seconds in times),
        )
        for term, times in zip(terms, gaps(terms), strict=True)
    ]


def records(terms: Sequence[Term]) -> list[dict[str, Any]]:
    """`gapSeconds` and `outageSeconds`: until the next term, see pinnace.api.terms; omitted if unknown."""
    return [_record(term, *times) for term, times in zip(terms, gaps(terms), strict=True)]


def _record(term: Term, gap: float | None, outage: float | None) -> dict[str, Any]:
    result: dict[str, Any] = {"election": term.election, "holder": term.holder, "token": term.token}
    result["began"] = format_rfc3339(term.began)
    if term.HasField("ended"):
        result |= {"ended": format_rfc3339(term.ended), "reason": term.reason, "presumed": term.presumed}
    if term.HasField("last_heartbeat"):
        result["lastHeartbeat"] = format_rfc3339(term.last_heartbeat)
    times = {"gapSeconds": gap, "outageSeconds": outage}
    return result | {name: round(seconds, 6) for name, seconds in times.items() if seconds is not None}


def gaps(terms: Sequence[Term]) -> Iterator[tuple[float | None, float | None]]:
    """Return the gap and the outage after each term in seconds. None: unknown, or no next term."""
    for term, following in pairwise(terms):
        began = to_seconds(following.began)
        end = TermEnd.of(term)
        yield end.gap(began), end.outage(began)
    yield from [(None, None)] * bool(terms)


def short(seconds: float) -> str:
    """With milliseconds for short durations: "4ms", "1.02s", "3m12s"."""
    if seconds < 1.0:
        return f"{seconds * 1000:.0f}ms"
    return f"{seconds:.2f}s" if seconds < 10.0 else human_duration(seconds)


def moment(instant: MicroTime) -> str:
    """ "2026-01-31 12:00:00.123" in UTC."""
    return format_rfc3339(instant).replace("T", " ")[:23]
