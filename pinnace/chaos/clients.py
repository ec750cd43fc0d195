"""Clients of the API whose every call is in the history.

They are `pinnace.client.Client`s over a connection that sends each call once, to one of the API servers, chosen at random, and
writes down what became of it. So whatever a test does with them, `modify` and paged lists included, each attempt is a record.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import Any, TypeVar

from google.protobuf.message import Message

from pinnace.api.resources import Resource
from pinnace.chaos.calls import answered, asked, outcome_of, parse
from pinnace.chaos.journal import Journal
from pinnace.check.history import Call, Item, Outcome, Verb
from pinnace.client.caller import PresentFence
from pinnace.client.connection import Connection
from pinnace.client.course import Course
from pinnace.client.errors import ApiError, NotFound
from pinnace.client.streams import Stream
from pinnace.runtime.tls import TlsFiles

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)

CALL_TIMEOUT = 3.0
CANCELLED = "CANCELLED"
CONTINUE = "continue"
"""The field that names a further page; a keyword of Python."""


class _Once(Connection):
    """A connection that never sends a call twice."""

    async def call(
        self,
        method: str,
        request: Message,
        response: type[R],
        *,
        timeout: float = 10.0,
        retry: bool = True,
        fence: PresentFence | None = None,
    ) -> R:
        return await self._attempt(Course(method), request, response, asyncio.get_running_loop().time() + timeout, False, fence)


class RecordingConnection(Connection):
    """`client` names it in the history. Each call goes to one of the `endpoints` at random, once."""

    def __init__(
        self, client: str, endpoints: Sequence[str], journal: Journal, rng: random.Random, tls: TlsFiles | None = None
    ) -> None:
        super().__init__(endpoints, tls=tls, rng=rng)
        self.client = client
        self.outcomes: Counter[str] = Counter()
        """Calls so far, by outcome."""
        self._journal = journal
        self._random = rng
        self._servers = [_Once([endpoint], tls=tls) for endpoint in endpoints]
        self._ids = count(1)
        self._lists: dict[str, int] = {}  # continue token -> the call that fetched the first page
        self._under_way: dict[int, _Attempt] = {}

    async def call(
        self,
        method: str,
        request: Message,
        response: type[R],
        *,
        timeout: float = CALL_TIMEOUT,
        retry: bool = True,
        fence: PresentFence | None = None,
    ) -> R:
        server = self._random.choice(self._servers)
        parsed = parse(method)
        if parsed is None:
            return await server.call(method, request, response, timeout=timeout, fence=fence)
        number = next(self._ids)
        attempt = self._under_way[number] = _Attempt(self.client, number, server.endpoint, *parsed, request)
        try:
            answer = await server.call(method, request, response, timeout=min(timeout, CALL_TIMEOUT), fence=fence)
        except ApiError as error:
            self._write(number, attempt.failed(error))
            raise
        except asyncio.CancelledError:
            self._write(number, attempt.ended("unknown", CANCELLED))
            raise
        self._write(number, attempt.done(answer, self._lists))
        return answer

    def abandon(self) -> None:
        """The client dies with calls under way: nobody will hear what becomes of them."""
        for number, attempt in list(self._under_way.items()):
            self._write(number, attempt.ended("unknown", CANCELLED))

    async def stream(self, method: str, request: Message, response: type[R]) -> Stream[R]:
        return await self._random.choice(self._servers).stream(method, request, response)

    async def close(self) -> None:
        await asyncio.gather(super().close(), *(server.close() for server in self._servers))

    def _write(self, number: int, call: Call) -> None:
        del self._under_way[number]
        self.outcomes[call.outcome] += 1
        self._journal.write(call)


class _Attempt:
    """A call that has been sent. One of its methods makes the record, when it has ended."""

    def __init__(self, client: str, number: int, server: str, verb: Verb, resource: Resource[Any], request: Any) -> None:
        self._began = time.monotonic()
        self._client = client
        self._number = number
        self._server = server
        self._verb = verb
        self._resource = resource
        self._request = request

    def done(self, answer: Any, lists: dict[str, int]) -> Call:
        """`lists`: which list each further page belongs to, kept up to date here."""
        items = answered(self._verb, self._resource, self._request, answer)
        if self._verb != "list":
            return self.ended("ok", items=items)
        token, further = getattr(self._request.options, CONTINUE), getattr(answer.metadata, CONTINUE)
        first = lists.pop(token, 0) if token else self._number
        if further:
            lists[further] = first
        namespace = self._request.namespace
        return self.ended(
            "ok",
            items=items,
            snapshot=int(answer.metadata.resourceVersion),
            prefix=f"{self._resource.prefix}{namespace}/" if namespace else self._resource.prefix,
            selection=self._request.options.labelSelector + self._request.options.fieldSelector,
            of=first,
            more=bool(further),
            stale=bool(token or self._request.options.resourceVersion),
        )

    def failed(self, error: ApiError) -> Call:
        if self._verb == "get" and isinstance(error, NotFound) and error.reason:
            return self.ended("ok", error.code.name, items=asked(self._verb, self._resource, self._request))
        return self.ended(outcome_of(error), error.code.name)

    def ended(self, outcome: Outcome, code: str = "", items: tuple[Item, ...] | None = None, **of_a_list: Any) -> Call:
        now = time.monotonic()
        named = asked(self._verb, self._resource, self._request, outcome) if items is None else items
        return Call(
            self._client, self._number, self._server, self._verb, self._resource.plural, self._began, now,
            outcome, code, named, **of_a_list,
        )  # fmt: skip
