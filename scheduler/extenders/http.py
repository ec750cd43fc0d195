"""Extenders over HTTP: a POST for each call, made in a thread, on a connection of its own.

The thread does all that takes long: reading JSON, and waiting; another one writes JSON. The timeout is for what the extender
takes, and whoever looks up its name. A call whose time is over is given up at once; its connection is broken, which ends the
thread, too. Only a thread that looks up a name cannot be ended: it is waited for by nobody but calls that have a timeout.
"""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TypeVar
from urllib.parse import urlsplit

from pinnace.api.core_v1_pb2 import Binding, Node, Pod
from pinnace.api.pods_pb2 import Fence
from scheduler.extenders import wire
from scheduler.extenders.interface import (
    BIND,
    FILTER,
    PREEMPT,
    PRIORITIZE,
    AnswerLost,
    Demanded,
    ExtenderConfiguration,
    ExtenderError,
    Filtered,
    NotSent,
    Sacrifice,
    Tls,
)

T = TypeVar("T")

BINDS = 32
"""At a time, at most; others wait. They have threads of their own: no decision waits for them."""
QUESTIONS = 4
"""Threads for all else. One question is asked at a time; those that were given up may take some time to end, and then the next
ones may not even begin within their time."""
MAX_ANSWER = 64 << 20
"""Bytes."""
_GATEWAY = (502, 504)
"""What somebody in between says who has lost the answer."""


class HttpTransport:
    """Raises OSError when a file of the TLS configuration cannot be used."""

    def __init__(self, configuration: ExtenderConfiguration) -> None:
        self._configuration = configuration
        self._base = configuration.url_prefix.rstrip("/")
        self._secure = _context(configuration.tls or Tls()) if urlsplit(self._base).scheme == "https" else None
        self._encoder = wire.Encoder()
        self._binders = ThreadPoolExecutor(BINDS, thread_name_prefix="extender-bind")
        self._room = asyncio.Semaphore(BINDS)
        self._askers = ThreadPoolExecutor(QUESTIONS, thread_name_prefix="extender")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="extender-args")  # of its own: nothing in it waits for anybody
        self._calls: set[_Call] = set()

    async def filter(self, pod: Pod, nodes: Sequence[Node]) -> Filtered:
        by_name = self._configuration.node_cache_capable
        body = await self._written(lambda: self._encoder.args(pod, nodes, by_name))
        found, problem = await self._post(FILTER, body, lambda answer: wire.filtered(answer, by_name))
        if problem:
            raise ExtenderError(FILTER, self._url(FILTER), f": {problem}")
        return found

    async def prioritize(self, pod: Pod, nodes: Sequence[Node]) -> Sequence[tuple[str, int]]:
        by_name = self._configuration.node_cache_capable
        body = await self._written(lambda: self._encoder.args(pod, nodes, by_name))
        return await self._post(PRIORITIZE, body, wire.priorities)

    async def preempt(self, pod: Pod, victims: Mapping[str, Sacrifice]) -> Mapping[str, Demanded]:
        by_uid = self._configuration.node_cache_capable
        body = await self._written(lambda: wire.preemption_args(pod, victims, by_uid))
        return await self._post(PREEMPT, body, wire.demanded)

    async def bind(self, binding: Binding, fence: Fence) -> None:
        async with self._room:
            problem = await self._post(BIND, wire.binding_args(binding, fence), wire.binding_error)
        if problem:
            raise ExtenderError(BIND, self._url(BIND), f": {problem}")

    async def close(self) -> None:
        for call in self._calls:
            call.give_up()
        for threads in (self._writer, self._askers, self._binders):
            threads.shutdown(wait=False, cancel_futures=True)

    def _url(self, verb: str) -> str:
        return f"{self._base}/{self._configuration.verbs[verb]}"

    async def _written(self, write: Callable[[], bytes]) -> bytes:
        return await asyncio.get_running_loop().run_in_executor(self._writer, write)

    async def _post(self, verb: str, body: bytes, decode: Callable[[bytes], T]) -> T:
        url, timeout = self._url(verb), self._configuration.timeout
        threads = self._binders if verb == BIND else self._askers
        loop = asyncio.get_running_loop()
        call = _Call(url, timeout, self._secure, body)
        self._calls.add(call)
        try:
            async with asyncio.timeout(timeout):
                status, answer = await loop.run_in_executor(threads, call.make, decode)
        except TimeoutError:
            kind = _kind(call)
            missing = "connection" if kind is NotSent else "answer"
            raise kind(verb, url, f": no {missing} within {timeout:g} s") from None
        except wire.Malformed as error:
            raise ExtenderError(verb, url, f": {error}") from None
        except (OSError, HTTPException, UnicodeError) as error:  # the last is of names that cannot be looked up
            raise _kind(call)(verb, url, f": {error or type(error).__name__}") from None
        finally:
            self._calls.discard(call)
            call.give_up()
        if answer is None:
            raise (AnswerLost if status in _GATEWAY else ExtenderError)(verb, url, f", code {status}")
        return answer


class _Call:
    """`make` is for a thread, `give_up` for any."""

    def __init__(self, url: str, timeout: float, secure: ssl.SSLContext | None, body: bytes) -> None:
        parts = urlsplit(url)
        host = parts.hostname or ""
        self._path = parts.path
        self._connection = (
            HTTPSConnection(host, parts.port, timeout=timeout, context=secure)
            if secure is not None
            else HTTPConnection(host, parts.port, timeout=timeout)
        )
        self._body = body
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._sent = False
        self._given_up = False

    def make(self, decode: Callable[[bytes], T]) -> tuple[int, T | None]:
        """The status, and with 200 the answer. Raises OSError, HTTPException, Malformed."""
        with closing(self._connection):
            self._connection.connect()
            with self._lock:
                if self._given_up:
                    raise TimeoutError
                self._socket, self._sent = self._connection.sock, True
                body = self._body
            headers = {"Content-Type": "application/json", "Connection": "close"}
            self._connection.request("POST", self._path, body, headers)
            with self._connection.getresponse() as response:
                if response.status != 200:
                    return response.status, None
                answer = response.read(MAX_ANSWER + 1)
        if len(answer) > MAX_ANSWER:
            raise wire.Malformed(f"the answer has more than {MAX_ANSWER} bytes")
        return 200, decode(answer)

    def give_up(self) -> bool:
        """Ends `make`, wherever it is, if it has not ended or begun. True: something may have been sent; False: nothing will
        be. What was to be sent is forgotten: it may be megabytes, and the thread may take long to notice."""
        with self._lock:
            self._given_up, self._body = True, b""
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
            return self._sent


def _kind(failed: _Call) -> type[ExtenderError]:
    return AnswerLost if failed.give_up() else NotSent


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.ca_file or None)
    if tls.cert_file:
        context.load_cert_chain(tls.cert_file, tls.key_file or None)
    if tls.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
