"""The calibration of the gateway benchmark: HAProxy is found, its static answer is served, and rates are paired."""

import json
import ssl
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pinnace.pki import Subject
from pinnace.pki.folder import CertificateSpec, PkiFolder
from pinnace.runtime.procfs import ProcessUsage
from pinnace.verification.bench import BenchError, haproxy
from pinnace.verification.bench.gateway import GatewayResults, cpu_per_item
from pinnace.verification.bench.report import WorkResult


def test_each_work_has_the_mean_of_the_static_rates_around_it() -> None:
    done = GatewayResults(
        works={"create": WorkResult(100.0, None, {}), "get": WorkResult(300.0, None, {})}, static=[1000.0, 3000.0, 5000.0]
    )
    assert {name: (work.static_rate, work.ratio) for name, work in done.calibrated_works().items()} == {
        "create": (2000.0, 0.05),
        "get": (4000.0, 0.075),
    }


def test_works_without_calibration_have_no_ratio() -> None:
    assert GatewayResults(works={"get": WorkResult(300.0, None, {})}).calibrated_works()["get"].ratio is None


def test_cpu_time_is_summed_by_component() -> None:
    usage = {name: ProcessUsage(cpu, 1.0) for name, cpu in (("gateway-0", 0.2), ("gateway-1", 0.4), ("etcd-0", 0.1))}
    usage["load generator"] = ProcessUsage(0.5, 1.0)
    result = cpu_per_item(usage, 1000)
    assert {name: round(us) for name, us in result.items()} == {"gateways": 600, "API servers": 0, "etcd": 100, "client": 500}


def test_haproxy_of_the_environment_must_exist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "haproxy"
    monkeypatch.setenv(haproxy.PROGRAM, str(program))
    with pytest.raises(BenchError, match="is not a program"):
        haproxy.find_haproxy()
    program.touch(mode=0o755)
    assert haproxy.find_haproxy() == str(program)


@pytest.mark.processes
def test_failure_of_haproxy_is_reported(tmp_path: Path, free_port: Callable[[], int]) -> None:
    program = tmp_path / "haproxy"
    program.write_text("#!/bin/sh\necho 'unknown keyword' >&2\nexit 1\n")
    program.chmod(0o755)
    with (
        pytest.raises(BenchError, match="HAProxy exited with code 1: unknown keyword"),
        haproxy.forward_tcp(str(program), "127.0.0.1:1", f"127.0.0.1:{free_port()}"),
    ):
        pass


@pytest.mark.processes
@pytest.mark.skipif(haproxy.find_haproxy() is None, reason="HAProxy is not installed")
def test_haproxy_serves_the_static_answer(tmp_path: Path, free_port: Callable[[], int]) -> None:
    folder = PkiFolder(tmp_path)
    folder.provide([CertificateSpec("server", Subject("server"), ("127.0.0.1",))], datetime.now(UTC))
    tls, program, listen = folder.files("server"), haproxy.find_haproxy(), f"127.0.0.1:{free_port()}"
    assert program is not None and tls.cert is not None and tls.key is not None
    context = ssl.create_default_context(cafile=str(tls.ca))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    with (
        haproxy.serve_static_answer(program, tls.cert, tls.key, listen, 1),
        opener.open(f"https://{listen}/any", timeout=10) as answer,
    ):
        assert answer.headers["Content-Type"] == "application/json" and json.loads(answer.read()) == {}
