"""Why there is no connection."""

import pytest

from pinnace.client.connection import ConnectionProblem, probe
from tests.conftest import free_port


@pytest.mark.parametrize("endpoint", ["127.0.0.1:99999", "127.0.0.1:http", "localhost"])
async def test_a_port_that_is_none_ends_no_diagnosis(endpoint: str) -> None:
    assert await probe(endpoint, None) == ConnectionProblem("no such port")


async def test_connection_refused_is_diagnosed() -> None:
    assert await probe(f"127.0.0.1:{free_port()}", None) == ConnectionProblem("connection refused")
