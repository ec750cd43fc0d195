"""The recorded answers of kube-apiserver, replayed with a store in memory and without HTTP."""

from dataclasses import replace
from typing import Any

import pytest

from pinnace.gateway.http import ANONYMOUS
from tests import golden
from tests.accounts import with_accounts
from tests.unit.gateway.serving import ADMIN, gateway

SETTINGS = replace(with_accounts(), disabled_plugins=frozenset({"ServiceAccount"}))
"""The server of the recordings signed tokens, and had no controllers that create the accounts of pods."""


@pytest.mark.parametrize("recording", golden.RECORDINGS, ids=lambda recording: recording.file)
async def test_answers_match_kube_apiserver(recording: golden.Recording) -> None:
    async with gateway(SETTINGS) as served:

        async def send(method: str, path: str, content_type: str, accept: str, body: Any) -> golden.Answer:
            user = ANONYMOUS if accept.endswith(golden.ANONYMOUS) else ADMIN
            answer = await served.ask(
                method, path, body, accept=accept.removesuffix(golden.ANONYMOUS), content_type=content_type, user=user,
                agent=golden.AGENT,
            )  # fmt: skip
            return golden.Answer(*answer)

        await golden.replay(send, recording)


@pytest.mark.parametrize("recording", golden.RECORDINGS, ids=lambda recording: recording.file)
def test_accepted_differences_have_reasons_and_requests(recording: golden.Recording) -> None:
    assert {exchange.name for exchange in recording.exchanges()} >= set(recording.accepted)
    assert all(reason for _, reason in recording.accepted.values())
