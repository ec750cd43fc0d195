"""What is asked of each kind that a command line names."""

import asyncio
from collections.abc import Sequence

import pytest

from pinnace.cli.objects.query import Query, Target, of_each, tell_none
from pinnace.cli.outcomes import ExitCode, Reported
from pinnace.cli.session import Session
from pinnace.cli.settings import Settings
from pinnace.client.config import ClientConfig
from pinnace.client.errors import Forbidden
from tests.unit.cli.fakes import FORBIDDEN, FakeApi


def session_of() -> Session:
    return Session(Settings(), ClientConfig(("a:1",)), FakeApi().client(), asyncio.timeout(None))


async def of(session: Session, words: Sequence[str]) -> list[str]:
    async def look(target: Target) -> str:
        if target.resource.plural == "services":
            raise FORBIDDEN
        return target.resource.plural

    return await of_each(session, Query.of(words), look)


async def test_forbidden_kinds_are_reported_and_the_others_shown(capsys: pytest.CaptureFixture[str]) -> None:
    session = session_of()
    assert await of(session, ["all"]) == ["pods", "deployments", "replicasets", "jobs"]
    tell_none(session, Query.of(["all"]))
    assert capsys.readouterr().err == "Error from server (Forbidden): you may not\n"
    with pytest.raises(Reported) as reported:
        session.finish()
    assert reported.value.code is ExitCode.SERVER


async def test_one_kind_alone_is_an_error() -> None:
    with pytest.raises(Forbidden):
        await of(session_of(), ["services"])
