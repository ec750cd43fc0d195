"""Health check node ports with real sockets."""

import asyncio

import pytest

from pinnace.proxy import healthcheck
from pinnace.proxy.healthcheck import HealthChecks
from pinnace.proxy.plan import NO_RULES, HealthCheck, ServiceRules
from tests.conftest import free_port


async def status(port: int) -> int:
    async with asyncio.timeout(5):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
    return int(answer.split()[1])


async def test_status_says_whether_the_node_has_endpoints() -> None:
    checks, port = HealthChecks("127.0.0.1"), free_port()
    await checks.apply({"default/web": ServiceRules(health_check=HealthCheck(port, 2))})
    assert await status(port) == 200
    await checks.apply({"default/web": ServiceRules(health_check=HealthCheck(port, 0))})
    assert await status(port) == 503
    await checks.apply({"default/web": NO_RULES})
    with pytest.raises(ConnectionRefusedError):
        await status(port)
    await checks.close()


async def test_idle_connections_end_for_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """They held file descriptors of the process without a limit."""
    monkeypatch.setattr(healthcheck, "HEALTH_CHECK_CONNECTIONS", 3)
    checks, port = HealthChecks("127.0.0.1"), free_port()
    await checks.apply({"default/web": ServiceRules(health_check=HealthCheck(port, 1))})
    idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(6)]
    assert await status(port) == 200
    async with asyncio.timeout(5):
        for reader, _ in idle[:4]:
            assert await reader.read() == b""
    assert await status(port) == 200
    for _, writer in idle:
        writer.close()
    await checks.close()
