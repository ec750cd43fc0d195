"""A connection that breaks at any byte, while events with the same resourceVersion are sent, loses no event.

The client receives the encrypted bytes of a real gateway one by one. After each byte, it has the events of the complete TLS
records, as a client whose connection breaks there. It would resume at the resourceVersion of the last one."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from pinnace.cluster import certificates
from pinnace.gateway.authentication import Authenticator
from pinnace.gateway.http import User
from pinnace.gateway.server import Server, tls_context
from pinnace.gateway.watch_events import PACKET
from pinnace.verification.bench.load import build_pod
from tests.unit.gateway.serving import Gateway, gateway

DEADLINE = 30.0
PATH = "/api/v1/namespaces/default/pods?watch=true&resourceVersion={}&allowWatchBookmarks={}"
BATCHES = (3, 5, 1, 40, 4, *[6] * 8)
"""The numbers of pods per transaction. The events of 40 pods are larger than a TLS record."""


class Event(NamedTuple):
    kind: str
    name: str
    revision: int


class NoTokens:
    async def review_token(self, token: str) -> User | None:
        return None


async def watched(served: Gateway, folder: Path, target: str) -> AsyncIterator[bytes]:
    """Yield the decrypted text of a watch each time that a byte completes more of it."""
    certificates.create_certificates(folder, ["127.0.0.1:1"], {})
    shown, mine = certificates.component_files(folder, "apiserver"), certificates.component_files(folder, "admin")
    server = Server(served.dispatcher, Authenticator(NoTokens()), tls_context(str(shown.cert), str(shown.key), str(shown.ca)))
    reader, writer = await asyncio.open_connection(*await server.start("127.0.0.1", 0))
    context = ssl.create_default_context(cafile=str(mine.ca))
    context.load_cert_chain(str(mine.cert), str(mine.key))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    try:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(1 << 16))
        tls.write(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        writer.write(outgoing.read())
        text = b""
        while encrypted := await reader.read(1 << 16):
            for at in range(len(encrypted)):
                incoming.write(encrypted[at : at + 1])
                with suppress(ssl.SSLWantReadError):
                    while part := tls.read(1 << 20):
                        text += part
                        yield text
    finally:
        writer.transport.abort()
        await server.stop()


def chunks(text: bytes) -> bytes:
    """The text of HTTP chunks, including the received part of the last one."""
    _, _, rest = text.partition(b"\r\n\r\n")
    result = b""
    while rest:
        size, ended, rest = rest.partition(b"\r\n")
        if not ended or not (length := int(size, 16)):
            break
        result, rest = result + rest[:length], rest[length + 2 :]
    return result


def events(text: bytes) -> list[Event]:
    """The events whose lines are complete."""
    complete, _, _ = chunks(text).rpartition(b"\n")
    result = []
    for line in complete.splitlines():
        event = json.loads(line)
        metadata = event["object"]["metadata"]
        result.append(Event(event["type"], metadata.get("name", ""), int(metadata["resourceVersion"])))
    return result


async def create(served: Gateway) -> None:
    for number, size in enumerate(BATCHES):
        pods = [build_pod(f"pod-{number}-{index}") for index in range(size)]
        for item in pods:
            item.metadata.namespace = "default"
        assert not any(outcome.HasField("error") for outcome in await served.client.pods.create_batch(pods))


@pytest.mark.parametrize("bookmarks", [False, True])
async def test_connection_cut_at_any_byte_loses_no_event(tmp_path: Path, bookmarks: bool) -> None:
    """A client received some events of a revision. After it resumed at this revision, the other events were missing."""
    states: list[list[Event]] = []
    async with asyncio.timeout(DEADLINE), gateway() as served:
        listed = await served.ask("GET", "/api/v1/namespaces/default/pods")
        target = PATH.format(listed.json["metadata"]["resourceVersion"], str(bookmarks).lower())
        async with aclosing(watched(served, tmp_path, target)) as texts:
            creating = asyncio.create_task(create(served))
            async for text in texts:
                states.append(events(text))
                if len({state.name for state in states[-1]} - {""}) == sum(BATCHES):
                    break
            await creating
    everything = [state for state in states[-1] if state.kind != "BOOKMARK"]
    assert len(everything) == len({item.name for item in everything}) == sum(BATCHES)
    assert [item.revision for item in everything] == sorted(item.revision for item in everything)
    large = [item.revision for item in everything if item.name.startswith("pod-3-")]
    assert len(set(large)) == 1 and len(text) > PACKET
    for received in filter(None, states):
        resumed = received[-1].revision
        lost = [item for item in everything if item.revision <= resumed and item not in received]
        if bookmarks or resumed != large[0]:
            assert not lost, f"a cut after {received[-1]} loses {lost}"
        repeated = [item for item in received if item.revision > resumed]
        assert not repeated or (bookmarks and {item.revision for item in repeated} == set(large))
    assert any(0 < sum(item.name.startswith("pod-3-") for item in received) < BATCHES[3] for received in states)
    if bookmarks:
        marks = [state for state in states[-1] if state.kind == "BOOKMARK"]
        assert marks and {mark.revision for mark in marks} == {large[0] - 1}
