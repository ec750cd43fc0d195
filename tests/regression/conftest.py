"""Fixtures for servers and candidates."""

from collections.abc import AsyncIterator

import pytest

from tests.contract.electing import ServeOn, Vote, serving, voting


@pytest.fixture
async def serve() -> AsyncIterator[ServeOn]:
    async with serving() as start:
        yield start


@pytest.fixture
async def vote() -> AsyncIterator[Vote]:
    async with voting() as start:
        yield start
