"""docker-compose.yml, checked without Docker: options exist, and files and addresses are consistent."""

import importlib
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from pinnace.cluster import certificates

ROOT = Path(__file__).resolve().parents[3]
COMPONENTS = ("apiserver", "scheduler", "controllers", "kubelet", "gateway")
MODULES = {"processes": "kubelet"}
_VARIABLE = re.compile(r"\$\{\w+:-([^}]*)\}")


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    text = _VARIABLE.sub(r"\1", (ROOT / "docker-compose.yml").read_text())
    found: dict[str, Any] = yaml.safe_load(text)["services"]
    return found


def words(services: dict[str, Any], component: str) -> list[str]:
    found = shlex.split(services[component]["command"])
    return shlex.split(found[2]) if found[0] == "sh" else found


@pytest.mark.parametrize("component", [*COMPONENTS, "proxy", "processes"])
def test_components_are_started_with_existing_options(services: dict[str, Any], component: str) -> None:
    known = {
        name for each in importlib.import_module(f"{MODULES.get(component, component)}.main").main.params for name in each.opts
    }
    given = {each for each in words(services, component) if each.startswith("--")}
    assert given and given <= known


def test_pki_creates_the_files_of_all_components(services: dict[str, Any], tmp_path: Path) -> None:
    certificates.provide(tmp_path, ["apiserver:7443"], {"kubelet": ["kubelet-*"]})
    for component in (*COMPONENTS, "proxy", "processes"):
        named = [each for each in words(services, component) if each.startswith("/pki/")]
        named += [each for each in services[component]["environment"].values() if str(each).startswith("/pki/")]
        assert named
        for each in named:
            assert (tmp_path / Path(each).relative_to("/pki")).is_file(), each


def test_proxy_shares_the_network_of_the_processes(services: dict[str, Any]) -> None:
    proxy, given = services["proxy"], words(services, "proxy")
    assert proxy["network_mode"] == "service:processes" and proxy["profiles"] == services["processes"]["profiles"]
    assert given[given.index("--http") + 1].split(":")[1] != "7480", "the port of the kubelet"
    assert given[given.index("--http") + 1] in proxy["healthcheck"]["test"][-1]


def test_ports_are_published_on_loopback_only(services: dict[str, Any]) -> None:
    ports = [port for each in services.values() for port in each.get("ports", ())]
    assert {"127.0.0.1:6443:6443", "127.0.0.1:7484:7484"} <= set(ports)
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_kubeconfig_names_the_published_port_of_the_gateway(services: dict[str, Any]) -> None:
    made = shlex.split(services["pki"]["command"])
    assert made[made.index("--gateway") + 1] == "127.0.0.1:6443"
    assert "gateway" in [made[index + 1] for index, each in enumerate(made) if each == "--host"]


def test_prometheus_scrapes_all_components() -> None:
    found = yaml.safe_load((ROOT / "prometheus.yml").read_text())
    assert set(found["scrape_configs"][0]["dns_sd_configs"][0]["names"]) == set(COMPONENTS)
