"""The recorded answers of kube-apiserver, replayed with a store in memory and without HTTP."""

from typing import Any

import pytest

from pinnace.gateway.http import ANONYMOUS
from tests import golden
from tests.golden_differences import ACCEPTED
from tests.unit.gateway.serving import ADMIN, gateway


async def test_answers_match_kube_apiserver() -> None:
    async with gateway() as served:

        async def send(method: str, path: str, content_type: str, accept: str, body: Any) -> golden.Answer:
            user = ANONYMOUS if accept.endswith(golden.ANONYMOUS) else ADMIN
            answer = await served.ask(
                method, path, body, accept=accept.removesuffix(golden.ANONYMOUS), content_type=content_type, user=user,
                agent=golden.AGENT,
            )  # fmt: skip
            return golden.Answer(*answer)

        await golden.replay(send)


@pytest.mark.parametrize("name", sorted(ACCEPTED))
def test_accepted_difference_has_a_reason_and_a_request(name: str) -> None:
    assert name in {exchange.name for exchange in golden.exchanges()}
    assert ACCEPTED[name][1]
