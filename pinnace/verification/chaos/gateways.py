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
from pinnace.history.records import Verb, WatchMessage, Word, object_digest
from pinnace.runtime.tls import TlsFiles
from pinnace.verification.chaos.clients import CALL_TIMEOUT, MOVED, PAUSE, STAY, CallAttempt, HistoryJournal
from pinnace.verification.chaos.workers import NOBODY, build_pod

NAMESPACE = "gateways"
PROTOBUF = "application/vnd.kubernetes.protobuf"
WATCHER = "watcher-gateways"
_WORDS: dict[str, Word] = {"ADDED": "added", "MODIFIED": "modified", "DELETED": "deleted"}


def path_of(namespace: str) -> str:
    """Return the path of the pods of a namespace."""
    return f"/api/v1/namespaces/{namespace}/pods"


def _build_two_bytes_message() -> Any:
    """Return a message class with two fields of bytes: WatchEvent, RawExtension and runtime.Unknown begin with these."""
    file = descriptor_pb2.FileDescriptorProto(name="pinnace/chaos/gateways.proto", package="pinnace.chaos", syntax="proto3")
    message, kinds = file.message_type.add(name="Pair"), descriptor_pb2.FieldDescriptorProto
    for number, name in ((1, "first"), (2, "second")):
        message.field.add(name=name, number=number, label=kinds.LABEL_OPTIONAL, type=kinds.TYPE_BYTES)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("pinnace.chaos.Pair"))


_Pair = _build_two_bytes_message()


class GatewayWatchEvent(NamedTuple):
    kind: str
    data: bytes
    """The encoded object."""


def decode_protobuf_response(body: bytes) -> bytes:
    """Return the encoded object of a protobuf response."""
    return bytes(_Pair.FromString(body.removeprefix(KUBERNETES_MAGIC)).second)


async def read_watch_events(content: aiohttp.StreamReader) -> AsyncIterator[GatewayWatchEvent]:
    """Yield the events of a watch until it ends. An incomplete last event is dropped."""
    with suppress(asyncio.IncompleteReadError):
        while True:
            length = int.from_bytes(await content.readexactly(4), "big")
            event = _Pair.FromString(await content.readexactly(length))
            yield GatewayWatchEvent(event.first.decode(), decode_protobuf_response(_Pair.FromString(event.second).first))


class GatewayRefused(Exception):
    """A gateway refused a request. `code`: the HTTP status."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the gateway responded {code}")
        self.code = code


class PodSession:
    """Sends requests for pods to random gateways, each once, and records their outcomes. `calls` counts them by outcome."""

    def __init__(self, addresses: Sequence[str], tls: TlsFiles, journal: HistoryJournal, rng: random.Random) -> None:
        context = ssl.create_default_context(cafile=str(tls.ca))
        context.load_cert_chain(str(tls.cert), str(tls.key))
        self.calls: Counter[str] = Counter()
        self._addresses = addresses
        self._journal = journal
        self._random = rng
        self._numbers = count(1)
        self._sessions = [
            aiohttp.ClientSession(f"https://{address}", connector=aiohttp.TCPConnector(ssl=context, limit=0))
            for address in addresses
        ]

    def choose_gateway(self) -> tuple[aiohttp.ClientSession, str]:
        """Return the session of a random gateway, and its address."""
        index = self._random.randrange(len(self._addresses))
        return self._sessions[index], self._addresses[index]

    async def create(self, client: str, namespace: str, name: str) -> Pod | None:
        """Create a pod that no scheduler processes. Return it, or None after a failure. `client`: the name in the history."""
        obj = build_pod(namespace, name, scheduler=NOBODY)
        body = kubernetes_envelope("v1", "Pod", obj.SerializeToString())
        return await self._call(client, "create", CreatePodRequest(object=obj), "POST", path_of(namespace), body)

    async def get(self, client: str, namespace: str, name: str) -> Pod | None:
        return await self._call(
            client, "get", GetRequest(namespace=namespace, name=name), "GET", f"{path_of(namespace)}/{name}"
        )

    async def delete(self, client: str, created: Pod) -> None:
        """Delete a pod with a precondition on its uid."""
        namespace, name = created.metadata.namespace, created.metadata.name
        request = DeleteRequest(namespace=namespace, name=name, options=DeleteOptions(gracePeriodSeconds=0))
        request.options.preconditions.uid = created.metadata.uid
        body = KUBERNETES_MAGIC + field(2, request.options.SerializeToString())
        await self._call(client, "delete", request, "DELETE", f"{path_of(namespace)}/{name}", body)

    async def close(self) -> None:
        for session in self._sessions:
            await session.close()

    async def _call(self, client: str, verb: Verb, request: Any, method: str, path: str, body: bytes = b"") -> Pod | None:
        """Send a request to a random gateway, and record the outcome. Return the object, or None after a failure."""
        session, address = self.choose_gateway()
        answer: Pod | None
        attempt = CallAttempt(client, next(self._numbers), address, verb, PODS, request)
        try:
            answer = await self._send(session, method, path, body)
            record = attempt.record_success(answer, {})
        except GatewayRefused as error:
            # 500 and 504 say that the outcome is unknown; after 503 and 4xx nothing has changed
            record = attempt.record_end("unknown" if error.code in (500, 504) else "refused", str(error.code))
            answer = None
        except aiohttp.ClientConnectorError:
            record, answer = attempt.record_end("refused", "UNAVAILABLE"), None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            record, answer = attempt.record_end("unknown", type(error).__name__), None
        except asyncio.CancelledError:
            self._journal.write(attempt.record_end("unknown", MOVED))
            raise
        self.calls[record.outcome] += 1
        self._journal.write(record)
        return answer

    async def _send(self, session: aiohttp.ClientSession, method: str, path: str, body: bytes) -> Pod:
        headers = {"Accept": PROTOBUF} | ({"Content-Type": PROTOBUF} if body else {})
        timeout = aiohttp.ClientTimeout(total=CALL_TIMEOUT)
        async with session.request(method, path, data=body or None, headers=headers, timeout=timeout) as answer:
            data = await answer.read()
            if answer.status not in (200, 201):
                raise GatewayRefused(answer.status)
            return Pod.FromString(decode_protobuf_response(data))


class GatewayClients:
    """The clients. `start_clients` starts them; `calls` counts their calls by outcome."""

    def __init__(
        self, addresses: Sequence[str], tls: TlsFiles, journal: HistoryJournal, rng: random.Random, writers: int = 2
    ) -> None:
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
        self._resume = 0
        self._pods: PodSession | None = None
        self._working: list[asyncio.Task[None]] = []
        self._watching: asyncio.Task[None] | None = None
        self._reached = asyncio.Event()

    @property
    def calls(self) -> Counter[str]:
        return self.pods.calls if self._pods is not None else Counter()

    @property
    def pods(self) -> PodSession:
        """Available after the start."""
        assert self._pods is not None
        return self._pods

    def start_clients(self) -> None:
        self._pods = PodSession(self._addresses, self._tls, self._journal, self._random)
        self._working = [asyncio.create_task(self._write(f"gateway-writer-{i}")) for i in range(self._writers)]
        self._watching = asyncio.create_task(self._watch())

    async def stop_writers(self) -> None:
        """Raise the errors of bugs in writers."""
        await _cancel_all(self._working)

    async def check_watch_delivery(self, within: float) -> str:
        """Create a pod, and wait until the watcher receives it. Return the problem, or ""."""
        deadline = time.monotonic() + within
        created = None
        while created is None and time.monotonic() < deadline:
            created = await self.pods.create("gateway-writer-0", NAMESPACE, f"last-{next(self._names)}")
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
        await _cancel_all([*self._working, *([self._watching] if self._watching else [])])
        if self._pods is not None:
            await self._pods.close()

    # --- the writers

    async def _write(self, client: str) -> None:
        while True:
            name = f"{client}-{next(self._names)}"
            if (created := await self.pods.create(client, NAMESPACE, name)) is None:
                await asyncio.sleep(PAUSE)
                continue
            await self.pods.get(client, NAMESPACE, name)
            if self._random.random() < 0.7:  # the others show at the end that acknowledged creates survive
                await self.pods.delete(client, created)

    # --- the watcher

    async def _watch(self) -> None:
        while True:
            session, address = self.pods.choose_gateway()
            code = MOVED
            self._record_told("began", self._resume, key=f"{PODS.prefix}{NAMESPACE}/", server=address)
            try:
                async with asyncio.timeout(self._random.uniform(*STAY)):
                    await self._read_stream(session)
            except TimeoutError:
                pass
            except (aiohttp.ClientError, OSError, GatewayRefused) as error:
                code = type(error).__name__
                if isinstance(error, GatewayRefused) and error.code == 410:
                    self._resume = 0
            finally:
                self._record_told("ended", server=address, code=code)
            if code != MOVED:
                await asyncio.sleep(PAUSE)

    async def _read_stream(self, session: aiohttp.ClientSession) -> None:
        parameters = {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": str(self._resume)}
        if not self._resume:
            parameters |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
            parameters["resourceVersion"] = str(self.revision or "")
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CALL_TIMEOUT)
        async with session.get(path_of(NAMESPACE), params=parameters, headers={"Accept": PROTOBUF}, timeout=timeout) as answer:
            if answer.status != 200:
                raise GatewayRefused(answer.status)
            self.streams += 1
            synced = bool(self._resume)
            async for event in read_watch_events(answer.content):
                if event.kind == "ERROR":
                    raise GatewayRefused(410)
                obj = Pod.FromString(event.data)
                revision = int(obj.metadata.resourceVersion)
                if event.kind == "BOOKMARK":
                    self._record_told("bookmark" if synced else "synced", revision)
                    synced = True
                else:
                    self._record_told(_WORDS[event.kind], revision, key=PODS.key_of(obj), digest=object_digest(obj))
                if synced:  # the objects of the initial state are in the order of their names
                    self.revision = self._resume = revision
                    self._reached.set()

    def _record_told(self, kind: Word, revision: int = 0, **more: Any) -> None:
        self._journal.write(WatchMessage(WATCHER, WATCHER, time.monotonic(), kind, revision, **more))


async def _cancel_all(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel the tasks. Raises their errors, which are bugs."""
    for task in tasks:
        task.cancel()
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(ended, Exception):
            raise ended
    tasks.clear()
