"""A short run of the HTTP fuzzer, and its inputs."""

from itertools import islice
from pathlib import Path

import pytest

from gateway.http import ApiStatus, Request
from tests.conftest import EtcdServer, wipe
from tests.fuzz.http_inputs import Inputs
from tests.fuzz.http_run import Run, gateway

FEW = 200


@pytest.mark.timeout(300)
async def test_a_gateway_does_not_mind(tmp_path: Path, etcd: EtcdServer) -> None:
    await wipe(etcd.endpoint)
    async with gateway(tmp_path, etcd.endpoint) as target:
        report = await Run(target, 0).play(FEW)
    assert report.problems == [], str(report)
    assert {"400", "401", "403", "404", "405"} <= set(report.codes)


def test_an_input_depends_on_its_seed_and_number_alone() -> None:
    assert list(islice(iter(Inputs(1)), 100)) == [Inputs(1).input(number) for number in range(100)]
    assert Inputs(1).input(5) != Inputs(2).input(5)


@pytest.mark.parametrize(
    ("value", "problem"), [("9" * 30, "out of range"), ("x", "invalid syntax"), ("9" * 9000, "invalid syntax")]
)
def test_a_number_that_is_no_int64_is_a_bad_request(value: str, problem: str) -> None:
    with pytest.raises(ApiStatus, match=problem) as caught:
        Request("GET", "/", {"limit": [value]}, {}).number("limit")
    assert caught.value.code == 400
