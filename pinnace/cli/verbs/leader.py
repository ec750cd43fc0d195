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
from pinnace.cli.session import CommandSession, run_session
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import Table, print_note, print_result
from pinnace.client.errors import NotFound, Unavailable
from pinnace.printers.columns import NONE, format_age, human_duration

HEADERS = ("ELECTION", "HOLDER", "TOKEN", "SINCE", "WAITING")
DEFAULT_ELECTION = SCHEDULER_ELECTION
"""The default election."""
PERMANENT_ELECTIONS = (SCHEDULER_ELECTION, CONTROLLERS_ELECTION)
"""Elections of every cluster, even if they never had a leader."""
POLL = 0.2
"""Seconds between two requests of a watch."""
TERM_HEADERS = ("HOLDER", "TOKEN", "FROM", "TO", "LASTED", "WHY IT ENDED", "GAP", "OUTAGE")


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
@click.argument("election", default=DEFAULT_ELECTION)
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), help="The output format. The default is a table.")
@click.option("-w", "--watch", is_flag=True, help="After listing, watch for changes until interrupted or --timeout.")
def show(settings: Settings, election: str, output: str | None, watch: bool) -> None:
    """Show the leader of an election.

    The token is the fencing token: it grows with every leader, and a write by the leader commits only while its token is the
    latest. The exit code is 3 when there is no leader.
    """
    if watch:
        run_session(settings, lambda session: session.await_watch(follow_leader(session, election, output)))
    else:
        run_session(settings, lambda session: print_leader(session, election, output))


@verb("list", examples="pinnace leader list")
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), help="The output format. The default is a table.")
def list_(settings: Settings, output: str | None) -> None:
    """List all elections that have a leader: those of the schedulers, of the controllers and of your own schedulers.

    WAITING lists the standby candidates in the order in which they joined.

    The exit code is 3 when no election has a leader.
    """
    run_session(settings, lambda session: print_all(session, output))


@verb(
    "history",
    examples="""
        pinnace leader history                  # of the schedulers, the present leader last
        pinnace leader history -o json | jq '.items[].reason'
    """,
)
@click.argument("election", default=DEFAULT_ELECTION)
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), help="The output format. The default is a table.")
def history(settings: Settings, election: str, output: str | None) -> None:
    """Show the last 100 terms of an election, the current one last.

    GAP is the time without a leader: from when the end of a term was detected until the next leader was elected. OUTAGE is the
    time without a working leader: from the last heartbeat of the leader until the next leader was elected. A frozen leader, for
    example, sends no heartbeats, but its term lasts until an API server ends it. Times are those of the API servers.

    A reason with a question mark is presumed: no process recorded the end. The term ended at TO at the latest, and both times
    are unknown.
    """
    run_session(settings, lambda session: print_history(session, election, output))


@verb(
    "transfer",
    examples="""
        pinnace leader transfer                 # to any standby candidate
        pinnace leader transfer --to scheduler-1
    """,
)
@click.argument("election", default=DEFAULT_ELECTION)
@click.option("--to", metavar="HOLDER", default="", help="The candidate that is to lead. By default, any standby candidate.")
def transfer(settings: Settings, election: str, to: str) -> None:
    """End the current term in favor of another candidate.

    The leader is deposed only after the other candidate has answered. Otherwise the leader stays, and the exit code is 3.
    """
    run_session(settings, lambda session: transfer_leadership(session, election, to))


leader.add_command(show)
leader.add_command(list_)
leader.add_command(transfer)
leader.add_command(history)


async def transfer_leadership(session: CommandSession, election: str, to: str) -> None:
    try:
        answer = await session.client.elections.transfer_leadership(election, to)
    except NotFound as error:
        if error.reason == "NoCandidate":
            raise
        raise await _no_leader_error(session, election, "name the next leader with --to") from error
    before, after = answer.before, answer.after
    if after == before:
        print_result(f"{after.holder} leads already, with token {after.token}\n")
        return
    if not after.holder:
        message = f'{before.holder} no longer leads, and election "{election}" has no leader yet'
        raise Failure(message, hint="`pinnace leader -w` waits for a leader", code=ExitCode.UNAVAILABLE)
    gap = f"{format_duration(answer.gap_micros / 1e6)} without a leader"
    print_result(f"{after.holder} leads with token {after.token}, after {before.holder} with token {before.token}: {gap}\n")
    if to and after.holder != to:
        raise Failure(f"{to} was nominated, but {after.holder} leads", hint="try again", code=ExitCode.CONFLICT)


async def print_history(session: CommandSession, election: str, form: str | None) -> None:
    terms = await session.client.elections.list_terms(election)
    if not terms:
        raise Failure(f'election "{election}" has had no leader yet', hint=_hint_for_word(election), code=ExitCode.NOT_FOUND)
    print_result(
        documents.dump_document(form, {"items": term_documents(terms)})
        if form
        else Table(TERM_HEADERS).render(term_rows(terms))
    )


async def print_leader(session: CommandSession, election: str, form: str | None) -> None:
    result = await _get_election(session, election)
    if not result.holder:
        raise await _no_leader_error(session, election)
    print_result(
        documents.dump_document(form, leader_document(result))
        if form
        else Table(HEADERS).render([leader_row(result, time.time())])
    )


async def print_all(session: CommandSession, form: str | None) -> None:
    led, now = await session.client.elections.list(), time.time()
    if not led:
        raise Failure("no election has a leader", hint="`pinnace status` shows which processes run", code=ExitCode.NOT_FOUND)
    shown = documents.dump_document(form, {"items": [leader_document(election) for election in led]}) if form else ""
    print_result(shown or Table(HEADERS).render([leader_row(election, now) for election in led]))


async def follow_leader(session: CommandSession, election: str, form: str | None) -> None:
    """Print each leader, and each gap that is long enough to be observed."""
    table = Table(HEADERS)
    last: tuple[str, int] | None = None
    lost = False
    while True:
        try:
            result = await _get_election(session, election)
        except Unavailable as error:
            if not lost:
                print_note(f"connection lost ({error.message}): retrying")
            lost = True
        else:
            lost = False
            if (result.holder, result.token) != last:
                last = (result.holder, result.token)
                print_result(
                    _format_watched_document(result, form) if form else table.render([leader_row(result, time.time())])
                )
        await asyncio.sleep(POLL)


async def _no_leader_error(session: CommandSession, election: str, hint: str = "") -> Failure:
    watch = f"pinnace leader{'' if election == DEFAULT_ELECTION else f' {election}'} -w"
    way = f"`pinnace status` shows which processes run; `{watch}` waits for a leader"
    known = election in PERMANENT_ELECTIONS or bool(await session.client.elections.list_terms(election))
    return Failure(
        f'election "{election}" has no leader',
        hint=way if known else "; ".join(filter(None, (_hint_for_word(election), hint))),
        code=ExitCode.NOT_FOUND,
    )


def _hint_for_word(election: str) -> str:
    """Return a hint for a word that may not be meant as an election."""
    if election in PERMANENT_ELECTIONS:
        return ""
    meant = did_you_mean(election, list(leader.commands))
    return f'"{election}" was taken for an election{meant}; `pinnace leader list` shows those that are led'


async def _get_election(session: CommandSession, election: str) -> Election:
    """Return the election, without a holder if there is no leader."""
    try:
        return await session.client.elections.get(election)
    except NotFound:
        return Election(name=election)


def leader_row(election: Election, now: float) -> tuple[str, ...]:
    if not election.holder:
        return election.name, "<none>", "", "", ""
    waiting = ",".join(candidate.holder for candidate in election.candidates) or NONE
    return election.name, election.holder, str(election.token), format_age(election.since, now), waiting


def leader_document(election: Election) -> dict[str, Any]:
    result: dict[str, Any] = {"election": election.name, "holder": election.holder, "token": election.token}
    if election.holder:
        result["waiting"] = [candidate.holder for candidate in election.candidates]
    return result | ({"since": format_rfc3339(election.since)} if election.HasField("since") else {})


def _format_watched_document(election: Election, form: str) -> str:
    """Return one document of several."""
    return (
        json.dumps(leader_document(election)) + "\n"
        if form == "json"
        else "---\n" + documents.dump_document(form, leader_document(election))
    )


def term_rows(terms: Sequence[Term]) -> list[tuple[str, ...]]:
    return [
        (
            term.holder,
            str(term.token),
            format_time(term.began),
            format_time(term.ended) if term.HasField("ended") else "",
            "<=" * term.presumed + format_duration(to_seconds(term.ended) - to_seconds(term.began))
            if term.HasField("ended")
            else "",
            (term.reason + "?" * term.presumed) if term.HasField("ended") else "leads",
            *("" if seconds is None else format_duration(seconds) for seconds in times),
        )
        for term, times in zip(terms, measure_gaps(terms), strict=True)
    ]


def term_documents(terms: Sequence[Term]) -> list[dict[str, Any]]:
    """Return the terms as documents. `gapSeconds` and `outageSeconds`: until the next term, see pinnace.api.terms; omitted if
    unknown."""
    return [_term_document(term, *times) for term, times in zip(terms, measure_gaps(terms), strict=True)]


def _term_document(term: Term, gap: float | None, outage: float | None) -> dict[str, Any]:
    result: dict[str, Any] = {"election": term.election, "holder": term.holder, "token": term.token}
    result["began"] = format_rfc3339(term.began)
    if term.HasField("ended"):
        result |= {"ended": format_rfc3339(term.ended), "reason": term.reason, "presumed": term.presumed}
    if term.HasField("last_heartbeat"):
        result["lastHeartbeat"] = format_rfc3339(term.last_heartbeat)
    times = {"gapSeconds": gap, "outageSeconds": outage}
    return result | {name: round(seconds, 6) for name, seconds in times.items() if seconds is not None}


def measure_gaps(terms: Sequence[Term]) -> Iterator[tuple[float | None, float | None]]:
    """Return the gap and the outage after each term in seconds. None: unknown, or no next term."""
    for term, following in pairwise(terms):
        began = to_seconds(following.began)
        end = TermEnd.of(term)
        yield end.gap(began), end.outage(began)
    yield from [(None, None)] * bool(terms)


def format_duration(seconds: float) -> str:
    """Format a duration, with milliseconds if it is short: "4ms", "1.02s", "3m12s"."""
    if seconds < 1.0:
        return f"{seconds * 1000:.0f}ms"
    return f"{seconds:.2f}s" if seconds < 10.0 else human_duration(seconds)


def format_time(instant: MicroTime) -> str:
    """Format a time: "2026-01-31 12:00:00.123" in UTC."""
    return format_rfc3339(instant).replace("T", " ")[:23]
