"""What the tests of whole schedulers share."""

from collections.abc import AsyncIterator

import pytest

from tests.unit.scheduler.cluster import Cluster
from tests.unit.scheduler.running import running


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    async with running(cluster.server):
        await cluster.start()
        yield cluster
        await cluster.close()
