"""Faults of the service proxy, while clients send requests through a service."""

import asyncio
import random
import time
from contextlib import suppress

from pinnace.api.codec import from_dict
from pinnace.api.core_v1_pb2 import Service
from pinnace.api.discovery_v1_pb2 import EndpointSlice
from pinnace.api.resources import ENDPOINT_SLICES, SERVICES
from pinnace.api.wellknown import SERVICE_LABEL
from pinnace.client.errors import ApiError
from pinnace.verification.chaos.cluster_under_test import ClusterUnderTest, NotPossible
from pinnace.verification.chaos.faults.base import MeasuringFault
from pinnace.verification.chaos.faults.processes import Kill

NAMESPACE = "default"
ANSWER = b"answer"
REQUEST_TIMEOUT = 2.0
BEFORE = 10.0
"""Seconds within which requests must succeed before the fault."""
AFTER = 30.0
"""Seconds within which requests must succeed after the restart. A process starts in a few seconds on a busy machine. Other
faults may affect the API servers meanwhile."""
POLL = 0.05


class TestService:
    """A server, and a service that leads to it."""

    def __init__(self, under_test: ClusterUnderTest, name: str) -> None:
        self._services = under_test.client.of(SERVICES)
        self._slices = under_test.client.of(ENDPOINT_SLICES)
        self._name = name
        self._server: asyncio.Server | None = None
        self._address = ""

    async def open(self) -> None:
        """Raises ApiError."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        metadata = {"name": self._name, "namespace": NAMESPACE}
        made = await self._services.create(from_dict(Service, {"metadata": metadata, "spec": {"ports": [{"port": 80}]}}))
        self._address = made.spec.clusterIP
        document = {
            "metadata": {**metadata, "labels": {SERVICE_LABEL: self._name}},
            "addressType": "IPv4",
            "ports": [{"port": port}],
            "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}],
        }
        await self._slices.create(from_dict(EndpointSlice, document))

    async def wait_for_answer(self, within: float) -> float:
        """Send requests until one succeeds, for at most `within` seconds. Return the seconds that this took."""
        began = time.monotonic()
        while (took := time.monotonic() - began) < within:
            if await self._request():
                return took
            await asyncio.sleep(POLL)
        return took

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for resource_client in (self._slices, self._services):
            with suppress(ApiError):  # it does not exist, or the API servers are unavailable
                await resource_client.delete(self._name, NAMESPACE)

    async def _request(self) -> bool:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(REQUEST_TIMEOUT):
                reader, writer = await asyncio.open_connection(self._address, 80)
                try:
                    return await reader.read() == ANSWER
                finally:
                    writer.close()
        return False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(ANSWER)
        writer.close()


class KillProxy(MeasuringFault):
    """kill -9 of the service proxy. It is restarted at the end; then requests must succeed again."""

    def __init__(self, under_test: ClusterUnderTest, target: str, rng: random.Random) -> None:
        super().__init__()
        self._kill = Kill(under_test, target, rng)
        self._target = target
        self._page = TestService(under_test, f"chaos-page-{rng.randrange(1 << 32):08x}")
        self._killed = False
        self.details = ""

    async def inject(self) -> None:
        try:
            await self._page.open()
        except ApiError as error:
            raise NotPossible(f"the service cannot be created: {error}") from None
        if await self._page.wait_for_answer(BEFORE) >= BEFORE:
            raise NotPossible(f"requests did not succeed within {BEFORE:g} s before the fault")
        await self._kill.inject()
        self._killed, self.details = True, self._kill.details

    async def undo(self) -> None:
        killed, self._killed = self._killed, False
        await self._kill.undo()
        try:
            if killed:
                self.read(
                    self._target, "seconds until requests succeeded again", await self._page.wait_for_answer(AFTER), most=AFTER
                )
        finally:
            await self._page.close()
