"""Diagnosis of failed connections."""

import pytest

from pinnace.client.connection import ConnectionProblem, probe_server
from tests.conftest import free_port


@pytest.mark.parametrize("endpoint", ["127.0.0.1:99999", "127.0.0.1:http", "localhost"])
async def test_invalid_port_is_diagnosed(endpoint: str) -> None:
    assert await probe_server(endpoint, None) == ConnectionProblem("no such port")


async def test_connection_refused_is_diagnosed() -> None:
    assert await probe_server(f"127.0.0.1:{free_port()}", None) == ConnectionProblem("connection refused")
