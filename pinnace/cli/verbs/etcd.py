"""`pinnace etcd`: the keys of the store, decoded and read-only, through the API servers' Keys service."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import click
from google.protobuf.message import DecodeError, Message

from pinnace.api.codec import to_dict
from pinnace.api.elections_pb2 import Candidate, Election, Nomination, Term
from pinnace.api.keys_pb2 import KeyVersion
from pinnace.api.resources import (
    ALL,
    CANDIDATES_PREFIX,
    ELECTIONS_PREFIX,
    NOMINATIONS_PREFIX,
    ROOT,
    SECRETS,
    TERMS_PREFIX,
    prefix_of,
)
from pinnace.cli.command import VerbGroup, verb
from pinnace.cli.objects.query import parse_resource
from pinnace.cli.outcomes import ExitCode, Failure, usage_failure
from pinnace.cli.output import documents
from pinnace.cli.session import CommandSession, run_session
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import Table, print_note, print_result
from pinnace.client.errors import Expired, Unavailable
from pinnace.printers.columns import NONE
from pinnace.runtime.backoff import Backoff

SILENCE_TIMEOUT = 15.0
"""Seconds without a response after which a watch is opened again. The servers report their progress every few seconds."""
HEADERS = ("KEY", "MOD-REVISION", "VERSION", "LEASE", "BYTES")
WATCH_HEADERS = ("REVISION", "OPERATION", "KEY", "LEASE")
_TYPES: dict[str, type[Message]] = {
    ELECTIONS_PREFIX: Election,
    CANDIDATES_PREFIX: Candidate,
    TERMS_PREFIX: Term,
    NOMINATIONS_PREFIX: Nomination,
} | {resource.prefix: resource.message for resource in ALL}


@click.group("etcd", cls=VerbGroup)
def etcd() -> None:
    """Show the keys of etcd, with decoded values.

    Keys are relative to the prefix of the control plane. The commands read only, through the API servers, and never show the
    values of Secrets. They need the verbs list and watch of the resource "keys" in the group pinnace.io.
    """


@verb(
    "ls",
    examples="""
        pinnace etcd ls                          # all keys
        pinnace etcd ls /registry/elections/     # the lock of each election
        pinnace etcd ls pods                     # short for /registry/pods/
    """,
)
@click.argument("prefix", default="")
@click.option("--revision", type=click.IntRange(min=1), help="List the keys at this revision.  [default: the current one]")
@click.option("-o", "--output", type=click.Choice(["yaml", "json", "name"]), help="The output format. The default is a table.")
def ls(settings: Settings, prefix: str, revision: int | None, output: str | None) -> None:
    """List keys with their revisions and leases.

    MOD-REVISION is the revision of the last write. VERSION is the number of writes since the key was created. LEASE is the
    etcd lease with which the key is deleted if it is not renewed, and its age since the last renewal.
    """

    async def body(session: CommandSession) -> None:
        table, count, result = Table(HEADERS), 0, list[dict[str, Any]]()
        async for page in session.client.keys.pages(full_prefix(prefix), revision or 0, keys_only=True, leases=True):
            count += len(page.items)
            if output == "name":
                print_result("".join(f"{item.key}\n" for item in page.items))
            elif output:
                result += map(describe_key, page.items)
            elif page.items:
                print_result(table.render([_key_row(item) for item in page.items]))
        if output in ("yaml", "json"):
            print_result(documents.dump_document(output, {"items": result}))
        elif not count:
            print_note(f"no keys found with the prefix {full_prefix(prefix) or '/'}")

    run_session(settings, body)


@verb(
    "get",
    examples="""
        pinnace etcd get /registry/pods/default/a
        pinnace etcd get pod a --at-revision 120        # short for pods/default/a
        pinnace etcd get elections/scheduler --at-revision 120
        pinnace etcd get terms/ --prefix -o json
    """,
)
@click.argument("key", metavar="KEY | KIND NAME")
@click.argument("name", default="", metavar="")
@click.option("--prefix", "by_prefix", is_flag=True, help="Get all keys that begin with KEY.")
@click.option(
    "--revision",
    "--at-revision",
    type=click.IntRange(min=1),
    help="Get the value at this revision, the resourceVersion of an object or a list.  [default: the current one]",
)
@click.option(
    "-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True, help="The output format."
)
def get(settings: Settings, key: str, name: str, by_prefix: bool, revision: int | None, output: str) -> None:
    """Show the decoded value of a key, with its revisions and lease.

    An object has the key /registry/PLURAL/NAMESPACE/NAME; KIND NAME is short for it. Etcd keeps old revisions until they are
    compacted, after five to ten minutes by default. The exit code is 3 if there is no such key.
    """
    kind = parse_resource(key) if name else None
    if by_prefix:
        if name:
            raise usage_failure("KIND NAME and --prefix cannot be used together", hint="omit one of them")
        wanted = full_prefix(key)
    elif key.endswith("/"):
        raise usage_failure(
            f'"{key}" is a prefix, not a key', hint=f"use `pinnace etcd get {key} --prefix`, or `pinnace etcd ls {key}`"
        )
    else:
        wanted = key if key.startswith("/") else ROOT + key

    async def body(session: CommandSession) -> None:
        keys, result = session.client.keys, list[dict[str, Any]]()
        key = kind.key(session.namespace, name) if kind is not None else wanted
        if by_prefix:
            async for page in keys.pages(key, revision or 0, leases=True):
                result += map(describe_key, page.items)
        elif (item := await keys.get(key, revision or 0, leases=True)) is not None:
            result.append(describe_key(item))
        if not result:
            where = f" at revision {revision}" if revision else ""
            hint = f"`pinnace etcd ls {key.rpartition('/')[0]}/` lists the keys beside it"
            raise Failure(f'key "{key}" not found{where}', hint=hint, code=ExitCode.NOT_FOUND)
        print_result(documents.dump_document(output, {"items": result} if by_prefix else result[0]))

    run_session(settings, body)


@verb(
    "watch",
    examples="""
        pinnace etcd watch elections candidates terms    # an election, write by write
        pinnace etcd watch pods --values
        pinnace etcd watch --revision 100 -o json
    """,
)
@click.argument("prefixes", nargs=-1, metavar="[PREFIX]...")
@click.option("--revision", type=click.IntRange(min=1), help="Begin with this revision.  [default: the next one]")
@click.option("--values", is_flag=True, help="Show the decoded value of each write, too.")
@click.option("-o", "--output", type=click.Choice(["json"]), help="One JSON document per change. The default is a table.")
def watch(settings: Settings, prefixes: tuple[str, ...], revision: int | None, values: bool, output: str | None) -> None:
    """Print changes of keys in the order of their revisions, until interrupted or --timeout.

    All writes of one transaction have the same revision. If the connection is lost, the watch resumes after the last printed
    revision.
    """
    wanted = [full_prefix(prefix) for prefix in prefixes]
    run_session(
        settings,
        lambda session: session.await_watch(follow_keys(session, wanted, revision or 0, values or output == "json", output)),
    )


etcd.add_command(ls)
etcd.add_command(get)
etcd.add_command(watch)


def _key_row(item: KeyVersion) -> tuple[str, ...]:
    return item.key, str(item.mod_revision), str(item.version), format_lease(item), str(item.size)


async def follow_keys(session: CommandSession, prefixes: list[str], start: int, values: bool, form: str | None) -> None:
    """Print changes, and resume after a lost connection. Raises ApiError: Expired if the start was compacted."""
    table, lost, backoff = Table(WATCH_HEADERS), False, Backoff(maximum=1.0)
    while True:
        try:
            async for response in session.client.keys.watch(prefixes, start, SILENCE_TIMEOUT, keys_only=not values):
                lost = False
                backoff.reset()
                start = max(start, response.revision + 1)
                for change in response.changes:
                    print_result(_format_change(change, table, form, values))
        except Expired as error:
            message = f"cannot watch from revision {start}: {error.message}"
            raise Failure(message, hint="omit --revision to begin with the next change", code=ExitCode.NOT_FOUND) from None
        except Unavailable as error:
            if not lost:
                print_note(f"connection lost ({error.message}): retrying")
            lost = True
        await asyncio.sleep(backoff.next_delay())


def _format_change(change: KeyVersion, table: Table, form: str | None, values: bool) -> str:
    operation = "DELETE" if change.deleted else "PUT"
    if form == "json":
        return json.dumps({"operation": operation} | describe_key(change)) + "\n"
    row = table.render([(str(change.mod_revision), operation, change.key, format_lease(change))])
    if not values or change.deleted:
        return row
    return row + "".join(f"    {line}\n" for line in documents.dump_document("yaml", decode_value(change)).splitlines())


def full_prefix(prefix: str) -> str:
    """Return the prefix of keys that the user means: "pods" and "pods/" are short for "/registry/pods/"."""
    if prefix.startswith("/"):
        return prefix
    if not prefix:
        return ""
    return ROOT + (prefix if "/" in prefix else f"{prefix}/")


def format_lease(item: KeyVersion) -> str:
    """Return the ID of the lease as etcdctl prints it, with the seconds since the last renewal if they are known."""
    if not item.lease:
        return NONE
    age = f" ({item.lease_age_seconds:.1f}s ago)" if item.HasField("lease_age_seconds") else ""
    return f"{item.lease:x}{age}"


def describe_key(item: KeyVersion) -> dict[str, Any]:
    """Return the key, its revisions, its lease and its decoded value as a document."""
    result: dict[str, Any] = {"key": item.key, "modRevision": item.mod_revision}
    if item.create_revision:
        result["createRevision"] = item.create_revision
    if item.version:
        result["version"] = item.version
    if item.lease:
        result["lease"] = f"{item.lease:x}"
    if item.HasField("lease_age_seconds"):
        result["secondsSinceRenewal"] = round(item.lease_age_seconds, 3)
    return result | ({"value": decode_value(item)} if item.value else {"bytes": item.size} if item.size else {})


def decode_value(item: KeyVersion) -> dict[str, Any]:
    """Return the value as a document. A value of an unknown type is shown as hexadecimal bytes."""
    if item.key.startswith(SECRETS.prefix):
        return {"secret": f"{item.size} bytes, not shown"}
    type_ = next(_candidate_types(item.key), None)
    if type_ is not None:
        try:
            return to_dict(type_.FromString(item.value))
        except DecodeError:
            pass
    return {"hex": item.value.hex()}


def _candidate_types(key: str) -> Iterator[type[Message]]:
    prefix = prefix_of(key)
    yield from (type_ for known, type_ in _TYPES.items() if known == prefix or key.startswith(known))
