"""An extender over gRPC, in this process."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from pinnace.api import extender_pb2 as pb

REQUESTS = {
    "Filter": pb.ExtenderArgs,
    "Prioritize": pb.ExtenderArgs,
    "Preempt": pb.ExtenderPreemptionArgs,
    "Bind": pb.ExtenderBindingArgs,
}
Answer = Callable[[Any, grpc.aio.ServicerContext], Awaitable[Any]]


@asynccontextmanager
async def rpc_extender(method: str, answer: Answer) -> AsyncIterator[tuple[str, list[Any]]]:
    """Its URL, and what it was asked."""
    asked: list[Any] = []

    async def handle(request: Any, context: grpc.aio.ServicerContext) -> Any:
        asked.append(request)
        return await answer(request, context)

    handler = grpc.unary_unary_rpc_method_handler(
        handle,
        request_deserializer=REQUESTS[method].FromString,
        response_serializer=lambda message: message.SerializeToString(),
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("pinnace.v1.Extender", {method: handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"grpc://127.0.0.1:{port}", asked
    await server.stop(None)


def answering(message: Any) -> Answer:
    async def answer(request: Any, context: grpc.aio.ServicerContext) -> Any:
        return message

    return answer
