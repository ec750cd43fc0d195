"""Responses of a FakeServer to calls about a pod, and a helper that makes such a call."""

import asyncio
from collections.abc import Callable
from typing import Any

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.status import Refusal
from pinnace.api.verbs_pb2 import GetRequest
from pinnace.client.connection import Connection
from tests.unit.client.fakeserver import FakeServer, refuse

METHOD = "/pinnace.v1.Pods/Get"


def answering(server: FakeServer, *steps: Refusal | Callable[[Any], Any], method: str = METHOD) -> None:
    """Script the first calls with the steps. Later calls return a pod that is named after the server."""
    script = list(steps)

    async def answer(request: GetRequest, context: Any) -> Pod:
        if script:
            step = script.pop(0)
            await (refuse(context, step) if isinstance(step, Refusal) else step(context))
        return named(server.address)

    server.on(method, GetRequest, answer)


def named(name: str) -> Pod:
    pod = Pod()
    pod.metadata.name = name
    return pod


async def get(connection: Connection, *, retry: bool = True, timeout: float = 5.0) -> str:
    return (await connection.call(METHOD, GetRequest(name="a"), Pod, timeout=timeout, retry=retry)).metadata.name


async def hang(context: Any) -> None:
    await asyncio.get_running_loop().create_future()
