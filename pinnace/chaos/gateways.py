"""Clients of the gateways over HTTP: a watcher and writers of pods. Their history is recorded like that of the gRPC clients.

The watcher resumes at the resourceVersion of its last event, at another gateway every few seconds. The writers create, read and
delete pods that no scheduler processes.
"""

import asyncio
import random
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple

import aiohttp
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.meta_v1_pb2 import DeleteOptions
from pinnace.api.pods_pb2 import CreatePodRequest
from pinnace.api.resources import PODS
from pinnace.api.verbs_pb2 import DeleteRequest, GetRequest
from pinnace.api.wire import KUBERNETES_MAGIC, field, kubernetes_envelope
from pinnace.chaos.clients import CALL_TIMEOUT, MOVED, PAUSE, STAY, Attempt, Journal
from pinnace.chaos.workers import NOBODY, pod
from pinnace.check.history import Told, Verb, Word, digest
from pinnace.runtime.tls import TlsFiles

NAMESPACE = "gateways"
PROTOBUF = "application/vnd.kubernetes.protobuf"
PATH = f"/api/v1/namespaces/{NAMESPACE}/pods"
WATCHER = "watcher-gateways"
_WORDS: dict[str, Word] = {"ADDED": "added", "MODIFIED": "modified", "DELETED": "deleted"}


def _pair() -> Any:
    """Return a message class with two fields of bytes: WatchEvent, RawExtension and runtime.Unknown begin with these."""
    file = descriptor_pb2.FileDescriptorProto(name="pinnace/chaos/gateways.proto", package="pinnace.chaos", syntax="proto3")
    message, kinds = file.message_type.add(name="Pair"), descriptor_pb2.FieldDescriptorProto
    for number, name in ((1, "first"), (2, "second")):
        message.field.add(name=name, number=number, label=kinds.LABEL_OPTIONAL, type=kinds.TYPE_BYTES)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("pinnace.chaos.Pair"))


_Pair = _pair()


class Event(NamedTuple):
    kind: str
    data: bytes
    """The encoded object."""


def unwrap(body: bytes) -> bytes:
    """Return the encoded object of a protobuf response."""
    return bytes(_Pair.FromString(body.removeprefix(KUBERNETES_MAGIC)).second)


async def events(content: aiohttp.StreamReader) -> AsyncIterator[Event]:
    """Yield the events of a watch until it ends. An incomplete last event is dropped."""
    with suppress(asyncio.IncompleteReadError):
        while True:
            length = int.from_bytes(await content.readexactly(4), "big")
            event = _Pair.FromString(await content.readexactly(length))
            yield Event(event.first.decode(), unwrap(_Pair.FromString(event.second).first))


class Refused(Exception):
    """A gateway refused a request. `code`: the HTTP status."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the gateway responded {code}")
        self.code = code


class Gateways:
    """The clients. `start` starts them; `calls` counts their calls by outcome."""

    def __init__(self, addresses: Sequence[str], tls: TlsFiles, journal: Journal, rng: random.Random, writers: int = 2) -> None:
        self.calls: Counter[str] = Counter()
        self.revision = 0
        """The revision of the last event."""
        self.streams = 0
        """The number of watches that were opened."""
        self._addresses = addresses
        self._tls = tls
        self._journal = journal
        self._random = rng
        self._writers = writers
        self._names = count()
        self._numbers = count(1)
        self._resume = 0
        self._sessions: list[aiohttp.ClientSession] = []
        self._working: list[asyncio.Task[None]] = []
        self._watching: asyncio.Task[None] | None = None
        self._reached = asyncio.Event()

    def start(self) -> None:
        context = ssl.create_default_context(cafile=str(self._tls.ca))
        context.load_cert_chain(str(self._tls.cert), str(self._tls.key))
        for address in self._addresses:
            connector = aiohttp.TCPConnector(ssl=context, limit=0)
            self._sessions.append(aiohttp.ClientSession(f"https://{address}", connector=connector))
        self._working = [asyncio.create_task(self._write(f"gateway-writer-{i}")) for i in range(self._writers)]
        self._watching = asyncio.create_task(self._watch())

    async def stop_writers(self) -> None:
        """Raises the errors of bugs in writers."""
        await _end(self._working)

    async def seen(self, within: float) -> str:
        """Create a pod, and wait until the watcher receives it. Return the problem, or ""."""
        deadline = time.monotonic() + within
        created = None
        while created is None and time.monotonic() < deadline:
            created = await self._create("gateway-writer-0", f"last-{next(self._names)}")
        if created is None:
            return "no gateway creates pods"
        revision = int(created.metadata.resourceVersion)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                while self.revision < revision:
                    self._reached.clear()
                    await self._reached.wait()
        if self.revision < revision:
            return f"{WATCHER} received events up to revision {self.revision}, not {revision}"
        return ""

    async def close(self) -> None:
        await _end([*self._working, *([self._watching] if self._watching else [])])
        for session in self._sessions:
            await session.close()

    # --- the writers

    async def _write(self, client: str) -> None:
        while True:
            name = f"{client}-{next(self._names)}"
            if (created := await self._create(client, name)) is None:
                await asyncio.sleep(PAUSE)
                continue
            await self._call(client, "get", GetRequest(namespace=NAMESPACE, name=name), "GET", f"{PATH}/{name}")
            if self._random.random() < 0.7:  # the others show at the end that acknowledged creates survive
                delete = DeleteRequest(namespace=NAMESPACE, name=name, options=DeleteOptions(gracePeriodSeconds=0))
                delete.options.preconditions.uid = created.metadata.uid
                body = KUBERNETES_MAGIC + field(2, delete.options.SerializeToString())
                await self._call(client, "delete", delete, "DELETE", f"{PATH}/{name}", body)

    async def _create(self, client: str, name: str) -> Pod | None:
        obj = pod(NAMESPACE, name, scheduler=NOBODY)
        body = kubernetes_envelope("v1", "Pod", obj.SerializeToString())
        return await self._call(client, "create", CreatePodRequest(object=obj), "POST", PATH, body)

    async def _call(self, client: str, verb: Verb, request: Any, method: str, path: str, body: bytes = b"") -> Pod | None:
        """Send a request to a random gateway, and record the outcome. Return the object, or None after a failure."""
        session, address = self._choose()
        attempt = Attempt(client, next(self._numbers), address, verb, PODS, request)
        try:
            found = await self._send(session, method, path, body)
            record = attempt.done(found, {})
        except Refused as error:
            # 500 and 504 say that the outcome is unknown; after 503 and 4xx nothing has changed
            record = attempt.ended("unknown" if error.code in (500, 504) else "refused", str(error.code))
            found = None
        except aiohttp.ClientConnectorError:
            record, found = attempt.ended("refused", "UNAVAILABLE"), None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            record, found = attempt.ended("unknown", type(error).__name__), None
        except asyncio.CancelledError:
            self._journal.write(attempt.ended("unknown", MOVED))
            raise
        self.calls[record.outcome] += 1
        self._journal.write(record)
        return found

    async def _send(self, session: aiohttp.ClientSession, method: str, path: str, body: bytes) -> Pod:
        headers = {"Accept": PROTOBUF} | ({"Content-Type": PROTOBUF} if body else {})
        timeout = aiohttp.ClientTimeout(total=CALL_TIMEOUT)
        async with session.request(method, path, data=body or None, headers=headers, timeout=timeout) as answer:
            data = await answer.read()
            if answer.status not in (200, 201):
                raise Refused(answer.status)
            return Pod.FromString(unwrap(data))

    def _choose(self) -> tuple[aiohttp.ClientSession, str]:
        index = self._random.randrange(len(self._addresses))
        return self._sessions[index], self._addresses[index]

    # --- the watcher

    async def _watch(self) -> None:
        while True:
            session, address = self._choose()
            code = MOVED
            self._tell("began", self._resume, key=f"{PODS.prefix}{NAMESPACE}/", server=address)
            try:
                async with asyncio.timeout(self._random.uniform(*STAY)):
                    await self._follow(session)
            except TimeoutError:
                pass
            except (aiohttp.ClientError, OSError, Refused) as error:
                code = type(error).__name__
                if isinstance(error, Refused) and error.code == 410:
                    self._resume = 0
            finally:
                self._tell("ended", server=address, code=code)
            if code != MOVED:
                await asyncio.sleep(PAUSE)

    async def _follow(self, session: aiohttp.ClientSession) -> None:
        parameters = {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": str(self._resume)}
        if not self._resume:
            parameters |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
            parameters["resourceVersion"] = str(self.revision or "")
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CALL_TIMEOUT)
        async with session.get(PATH, params=parameters, headers={"Accept": PROTOBUF}, timeout=timeout) as answer:
            if answer.status != 200:
                raise Refused(answer.status)
            self.streams += 1
            synced = bool(self._resume)
            async for event in events(answer.content):
                if event.kind == "ERROR":
                    raise Refused(410)
                obj = Pod.FromString(event.data)
                revision = int(obj.metadata.resourceVersion)
                if event.kind == "BOOKMARK":
                    self._tell("bookmark" if synced else "synced", revision)
                    synced = True
                else:
                    self._tell(_WORDS[event.kind], revision, key=PODS.key_of(obj), digest=digest(obj))
                if synced:  # the objects of the initial state are in the order of their names
                    self.revision = self._resume = revision
                    self._reached.set()

    def _tell(self, kind: Word, revision: int = 0, **more: Any) -> None:
        self._journal.write(Told(WATCHER, WATCHER, time.monotonic(), kind, revision, **more))


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel the tasks. Raises their errors, which are bugs."""
    for task in tasks:
        task.cancel()
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(ended, Exception):
            raise ended
    tasks.clear()
