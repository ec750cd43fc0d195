"""The API servers: does each answer, is it of this version, what time is it there, and are there leaders."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pinnace.api.core_v1_pb2 import Namespace
from pinnace.api.scalars import to_seconds
from pinnace.cli.doctor.finding import Finding, ok, problem, warning
from pinnace.cli.outcomes import Failure
from pinnace.cli.servers import reach, version_of
from pinnace.client.client import Client
from pinnace.client.config import ClientConfig
from pinnace.client.connection import Connection
from pinnace.client.errors import ApiError, Forbidden
from pinnace.runtime import build

TIMEOUT = 3.0
"""Seconds, of a call."""
SKEW = 3.0
"""Seconds by which clocks may differ without a word: the server's time comes without fractions."""
UPGRADING = "docs/upgrading.md says what works together"


async def server(config: ClientConfig, endpoint: str) -> Sequence[Finding]:
    """One of them."""
    name = "server"
    try:
        await reach(replace(config, endpoints=(endpoint,)))
        theirs = await version_of(endpoint, config.tls, TIMEOUT)
    except Failure as failure:
        return [problem(name, failure.report.lines[0], failure.report.hint)]
    except (ApiError, OSError) as error:
        return [problem(name, f"{endpoint}: {error}", "see its log")]
    if theirs != build.version():
        return [warning(name, f"{endpoint} is of version {theirs}, this program of {build.version()}", UPGRADING)]
    return [ok(name, f"{endpoint} answers; version {theirs}")]


async def clock(config: ClientConfig) -> Sequence[Finding]:
    """Asked by an object that is made for show: a dry run."""
    connection = Connection(config.endpoints, tls=config.tls)
    try:
        wanted = Namespace()
        wanted.metadata.generateName = "doctor-"
        before = time.time()
        made = await Client(connection).namespaces.create(wanted, dry_run=True)
        return [skewed(to_seconds(made.metadata.creationTimestamp), before, time.time())]
    except Forbidden:
        return [ok("clock", "not compared: it takes the right to create namespaces")]
    except ApiError as error:
        return [warning("clock", f"not compared: {error}")]
    finally:
        await connection.close()


def skewed(there: float, before: float, after: float) -> Finding:
    """`there`: the server's clock at a moment between these two of ours; all in Unix seconds."""
    difference = max(there - after, before - there - 1, 0.0)
    if difference <= SKEW:
        return ok("clock", "as the server's")
    side = "ahead of" if there > after else "behind"
    message = f"the server's is {difference:,.0f} s {side} this machine's"
    return warning("clock", message, "set the clocks by NTP: certificates, events and deadlines go by them")


async def leaders(config: ClientConfig, expected: Sequence[str]) -> Sequence[Finding]:
    """`expected`: elections that should have a leader."""
    connection = Connection(config.endpoints, tls=config.tls)
    try:
        found = await Client(connection).elections.list()
    except ApiError as error:
        return [warning("leaders", f"not known: {error}")]
    finally:
        await connection.close()
    return led({each.name: each.holder for each in found}, expected)


def led(holders: Mapping[str, str], expected: Sequence[str]) -> Sequence[Finding]:
    hint = "do its candidates run? `pinnace status` shows them, `pinnace leader history NAME` who led before"
    missing = [
        problem("leaders", f'nobody leads "{name}"', hint.replace("NAME", name)) for name in expected if not holders.get(name)
    ]
    said = ", ".join(f"{holder} leads {name}" for name, holder in sorted(holders.items()) if holder)
    return [*missing, *([ok("leaders", said)] if said else [])]
