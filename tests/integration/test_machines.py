"""A cluster on three machines, by the commands of docs/several-machines.md. Machines die: packets are swallowed, and nothing is
reset.

    PINNACE_CUTS=10 pytest -s -m chaos tests/integration/test_machines.py
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pinnace.verification.chaos.host import find_library
from tests.integration.machines import COMPONENTS, Site, can_make_namespaces, make_site

CUTS = int(os.environ.get("PINNACE_CUTS", "0"))
"""How often a machine is cut off. 0: the tests are skipped; `make soak` runs them."""
PATIENCE = 90.0
GAP = float(os.environ.get("PINNACE_GAP", "10"))
"""Seconds from a cut to the next bind of a later pod that fail the test. On a quiet machine: docs/several-machines.md."""
pytestmark = [
    pytest.mark.chaos,
    pytest.mark.timeout(120 + 120 * CUTS),
    pytest.mark.skipif(not CUTS or not can_make_namespaces(), reason="PINNACE_CUTS is not set, or this is not root"),
]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with make_site(tmp_path) as site:
        for component in COMPONENTS:
            for machine in site.machines:
                machine.start(component)
        wait_until(lambda: count_ready_nodes(site) == 15)
        yield site


def wait_until(is_reached: Callable[[], bool]) -> float:
    """Return the seconds until the condition holds. A command that fails counts as "not yet"."""
    began, problem = time.monotonic(), "the condition does not hold"
    while time.monotonic() - began < PATIENCE:
        try:
            if is_reached():
                return time.monotonic() - began
        except AssertionError as error:
            problem = str(error)
        time.sleep(0.1)
    raise AssertionError(problem)


def count_ready_nodes(site: Site) -> int:
    return site.run("pinnace", "get", "nodes", "--server", f"https://{find_gateway(site)}:6443").count(" Ready ")


def find_gateway(site: Site) -> str:
    """Return the address of a machine that is not cut off."""
    return next(machine.address for machine in site.machines if not machine.is_cut_off)


def find_leader(site: Site) -> str:
    """Return the name of the leading scheduler."""
    return find_term(site)[0]


@contextmanager
def load(site: Site) -> Iterator[dict[str, Any]]:
    """Create pods during the block. The result is complete after it."""
    command = site.command(sys.executable, "-m", "tests.integration.machine_load")
    process = subprocess.Popen(command, env=site.environment, stdout=subprocess.PIPE, text=True, start_new_session=True)
    result: dict[str, Any] = {}
    try:
        yield result
        process.send_signal(signal.SIGTERM)
        result.update(json.loads(process.communicate(timeout=30)[0]))
    finally:
        process.kill()
        process.wait()


def find_term(site: Site) -> tuple[str, int]:
    """Return the name of the leading scheduler, and its token."""
    election = json.loads(site.run("pinnace", "leader", "-o", "json"))
    return str(election["holder"]), int(election["token"])


def measure_gap(result: dict[str, Any], cut: float) -> float:
    """Return the seconds from the cut to the first bind of a pod that was created after it."""
    later = [bound for name, bound in result["bound"].items() if result["created"].get(name, 0) > cut]
    return min(later, default=float("inf")) - cut


def test_each_machine_dies_and_returns_and_no_pod_is_lost(site: Site) -> None:
    cuts: list[tuple[float, str]] = []
    with load(site) as result:
        for number in range(CUTS):
            leader = find_leader(site)
            machine = site.machines[number % 3] if number % 2 else next(m for m in site.machines if leader.endswith(m.name))
            what = f"{machine.name}{' (leader)' if leader.endswith(machine.name) else ''}"
            time.sleep(1)  # the load is steady
            machine.cut_off()
            cuts.append((time.monotonic(), what))
            not_ready = wait_until(lambda: count_ready_nodes(site) == 10)
            wait_until(lambda leader=leader, name=machine.name: not leader.endswith(name) or find_leader(site) != leader)
            machine.join_again()
            back = wait_until(lambda: count_ready_nodes(site) == 15)
            print(f"{what}: NotReady after {not_ready:.1f} s, all Ready {back:.1f} s after the link is back")
        time.sleep(2)
        wait_until(lambda: all_bound(site))
    for cut, what in cuts:
        print(f"{what}: the next pod is bound {measure_gap(result, cut):.2f} s after the cut")
    print(f"{len(result['created'])} pods created, {len(result['errors'])} calls failed")
    pods = {pod["metadata"]["name"] for pod in list_pods(site)}
    assert set(result["created"]) <= pods, "acknowledged pods are lost"
    assert all(measure_gap(result, cut) < GAP for cut, _ in cuts)


def list_pods(site: Site) -> list[dict[str, Any]]:
    text = site.run("pinnace", "get", "pods", "-o", "json", "--server", f"https://{find_gateway(site)}:6443")
    return list(json.loads(text)["items"])


def all_bound(site: Site) -> bool:
    """Whether all pods that are at least a second old are bound."""
    return sum(not pod["spec"].get("nodeName") for pod in list_pods(site)) < 25


def test_two_machines_die_and_no_acknowledged_pod_is_lost(site: Site) -> None:
    with load(site) as result:
        time.sleep(2)
        for machine in site.machines[1:]:
            machine.cut_off()
        cut = time.monotonic()
        time.sleep(6)
        for machine in site.machines[1:]:
            machine.join_again()
        joined = time.monotonic()
        back = wait_until(lambda: count_ready_nodes(site) == 15)
        time.sleep(2)
        wait_until(lambda: all_bound(site))
    during = [at for at in result["created"].values() if cut + 3 < at < joined]
    print(f"two machines: {len(during)} creates later than 3 s after the cut, all Ready {back:.1f} s after the links are back, "
          f"next bind {measure_gap(result, joined):.2f} s after")  # fmt: skip
    assert not during, "writes without a majority of etcd"
    assert set(result["created"]) <= {pod["metadata"]["name"] for pod in list_pods(site)}


def test_leader_and_another_machine_that_cannot_reach_each_other_go_on(site: Site) -> None:
    leader = find_leader(site)
    mine = next(machine for machine in site.machines if leader.endswith(machine.name))
    other = next(machine for machine in site.machines if machine is not mine)
    with load(site) as result:
        time.sleep(2)
        mine.block(other)
        cut = time.monotonic()
        time.sleep(8)
        unblocked_at = time.monotonic()
        mine.unblock(other)
        time.sleep(3)
        wait_until(lambda: all_bound(site))
    binds = sorted(at for at in result["bound"].values() if cut < at < unblocked_at)
    pauses = [later - earlier for earlier, later in pairwise([cut, *binds, unblocked_at])]
    print(f"no network between {mine.name} (leader) and {other.name}: longest pause between binds {max(pauses):.2f} s")
    assert max(pauses) < GAP and len(result["created"]) > 50
    assert set(result["created"]) <= {pod["metadata"]["name"] for pod in list_pods(site)}


def test_machine_joins_by_a_token_and_gets_no_key_of_the_cluster(site: Site) -> None:
    first, new = site.machines[0], site.joining
    first.start("signer")
    wait_until(lambda: "signer on" in first.log("signer"))
    command = first.execute("token", KUBECONFIG=str(site.pki / "admin.conf")).strip()
    print(new.execute("join", JOIN=command), end="")
    assert {path.name for path in (new.folder / "pki").iterdir()} == {"ca.crt", "delta.crt", "delta.key", "delta.conf"}
    new.start("worker")
    wait_until(lambda: count_ready_nodes(site) == 20)


@pytest.mark.skipif(find_library() is None, reason="libfaketime is not installed")
def test_clocks_that_differ_by_ten_seconds_change_nothing(tmp_path: Path) -> None:
    with make_site(tmp_path) as site:
        for component in COMPONENTS:
            for machine, skew in zip(site.machines, ("+5s", "-5s", "+0s"), strict=True):
                faked = {"LD_PRELOAD": str(find_library()), "FAKETIME": skew, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
                machine.start(component, environment=faked)
        wait_until(lambda: count_ready_nodes(site) == 15)
        before = find_term(site)
        with load(site) as result:
            time.sleep(15)
            wait_until(lambda: all_bound(site))
        print(f"clocks +5 s, -5 s, 0 s: {len(result['created'])} pods, {len(result['errors'])} calls failed")
        assert result["errors"] == [] and find_term(site) == before and count_ready_nodes(site) == 15
