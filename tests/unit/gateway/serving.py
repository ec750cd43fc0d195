"""A gateway and an API server in one process, with a store in memory, but without HTTP and TLS."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from pinnace.api.users import Impersonation
from pinnace.apiserver.assembly import DEFAULTS, ServerSettings
from pinnace.apiserver.server import ApiServer
from pinnace.client.client import Client
from pinnace.client.config import ClientConfig
from pinnace.client.connection import Connection
from pinnace.gateway.backend import Backend, add_warning, record_created
from pinnace.gateway.custom_resources import CustomKinds
from pinnace.gateway.dispatch import Dispatcher
from pinnace.gateway.exec import WebSocketUpgrade
from pinnace.gateway.http import JSON, ApiStatus, Request, Response, User
from pinnace.gateway.server import error_response
from pinnace.gateway.workers import ConversionWorker
from tests.storage.memory import MemoryStorage
from tests.unit.cacher.world import eventually

DEADLINE = 60.0
"""Seconds for one request."""
ADMIN = User("admin", ("system:masters", "system:authenticated"))


class Answer(NamedTuple):
    code: int
    content_type: str
    body: bytes
    warnings: list[str]
    retry_after: str | None = None

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        """The events of a watch."""
        return [json.loads(line) for line in self.body.splitlines()]


class Gateway:
    def __init__(self, dispatcher: Dispatcher, client: Client, address: str) -> None:
        """`address`: the address of the API server."""
        self.dispatcher = dispatcher
        self.client = client
        self.address = address

    async def ask(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        accept: str = JSON,
        content_type: str = JSON,
        user: User = ADMIN,
        agent: str = "",
        impersonation: Impersonation | None = None,
    ) -> Answer:
        """Send a request and read its response, including a stream to its end.

        `body`: bytes, text, or a value that is sent as JSON. `agent`: the user agent.
        """
        url = urlsplit(target)
        if isinstance(body, bytes):
            sent = body
        else:
            sent = (body if isinstance(body, str) else json.dumps(body) if body is not None else "").encode()
        headers = {"accept": accept, "user-agent": agent} | ({"content-type": content_type} if sent else {})
        request = Request(method, url.path, parse_qs(url.query, keep_blank_values=True), headers, sent, user)
        request.impersonation = impersonation
        async with asyncio.timeout(DEADLINE):
            try:
                response: Response | WebSocketUpgrade = await self.dispatcher.answer(request)
            except ApiStatus as status:
                response = error_response(status, request)
            assert isinstance(response, Response)
            data = response.body if isinstance(response.body, bytes) else b"".join([chunk async for chunk in response.body])
        return Answer(response.code, response.content_type, data, request.warnings, response.headers.get("Retry-After"))


@asynccontextmanager
async def gateway(settings: ServerSettings = DEFAULTS, storage: MemoryStorage | None = None) -> AsyncIterator[Gateway]:
    """`storage`: of several API servers."""
    server = ApiServer(storage or MemoryStorage(), settings=settings)
    at = await server.start("127.0.0.1:0")
    running = asyncio.ensure_future(server.run())
    connection = Connection([at], on_warning=add_warning, on_created=record_created, exchanges=True)
    client = Client(connection)
    workers = ConversionWorker()
    custom = CustomKinds(client)
    converting, following = asyncio.create_task(workers.run()), asyncio.create_task(custom.run())
    try:
        await eventually(lambda: server.readiness() is None)
        dispatcher = Dispatcher(Backend(connection), lambda: "", ClientConfig((at,)), workers, custom=custom)
        yield Gateway(dispatcher, client, at)
        assert not running.done(), "the API server serves until it is stopped"
    finally:
        await connection.close()
        await server.stop()
        for task in (running, converting, following):
            task.cancel()
        await asyncio.gather(running, converting, following, return_exceptions=True)
