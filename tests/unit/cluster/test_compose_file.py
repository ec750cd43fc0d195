"""docker-compose.yml, checked without Docker: options exist, and files and addresses are consistent."""

import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pinnace.client.config import load_config
from pinnace.cluster import certificates

ROOT = Path(__file__).resolve().parents[3]
COMPONENTS = ("apiserver", "scheduler", "controllers", "kubelet", "gateway")
MODULES = {"processes": "kubelet"}
_VARIABLE = re.compile(r"\$\{\w+:-([^}]*)\}")


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    text = _VARIABLE.sub(r"\1", (ROOT / "docker-compose.yml").read_text())
    result: dict[str, Any] = yaml.safe_load(text)["services"]
    return result


def words(services: dict[str, Any], component: str) -> list[str]:
    result = shlex.split(services[component]["command"])
    return shlex.split(result[2]) if result[0] == "sh" else result


@pytest.mark.parametrize("component", [*COMPONENTS, "proxy", "processes"])
def test_components_are_started_with_existing_options(services: dict[str, Any], component: str) -> None:
    known = {
        name
        for param in importlib.import_module(f"pinnace.{MODULES.get(component, component)}.main").main.params
        for name in param.opts
    }
    given = {word for word in words(services, component) if word.startswith("--")}
    assert given and given <= known


def test_pki_creates_the_files_of_all_components(services: dict[str, Any], tmp_path: Path) -> None:
    certificates.create_certificates(tmp_path, ["apiserver:7443"], {"kubelet": ["kubelet-*"]})
    for component in (*COMPONENTS, "proxy", "processes"):
        named = [word for word in words(services, component) if word.startswith("/pki/")]
        named += [service for service in services[component]["environment"].values() if str(service).startswith("/pki/")]
        assert named
        for item in named:
            assert (tmp_path / Path(item).relative_to("/pki")).is_file(), item


def test_proxy_shares_the_network_of_the_processes(services: dict[str, Any]) -> None:
    proxy, given = services["proxy"], words(services, "proxy")
    assert proxy["network_mode"] == "service:processes" and proxy["profiles"] == services["processes"]["profiles"]
    assert given[given.index("--http") + 1].split(":")[1] != "7480", "the port of the kubelet"
    assert given[given.index("--http") + 1] in proxy["healthcheck"]["test"][-1]


def test_ports_are_published_on_loopback_only(services: dict[str, Any]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert {"127.0.0.1:6443:6443", "127.0.0.1:7484:7484"} <= set(ports)
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_kubeconfig_in_containers_names_the_service_of_the_gateway(services: dict[str, Any]) -> None:
    made = shlex.split(services["pki"]["command"])
    assert made[made.index("--gateway") + 1] == "gateway:6443"
    assert "gateway" in [made[index + 1] for index, each in enumerate(made) if each == "--host"]


@pytest.mark.processes
@pytest.mark.parametrize(("ports", "servers"), [("7443-7444", "127.0.0.1:7443,127.0.0.1:7444"), ("7443", "127.0.0.1:7443")])
def test_kubeconfig_of_this_machine_names_the_published_ports(
    services: dict[str, Any], tmp_path: Path, ports: str, servers: str
) -> None:
    """The command of the service, with the paths of this test."""
    shell, flags, text = services["kubeconfig"]["command"]
    text = text.replace("$$", "$").replace("/pki", f"{tmp_path}/pki").replace("/kube", f"{tmp_path}/kube")
    certificates.create_certificates(tmp_path / "pki", ["apiserver:7443"], {}, gateway="gateway:6443")
    (tmp_path / "kube").mkdir()
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PORTS": ports,
        "GATEWAY_PORT": services["kubeconfig"]["environment"]["GATEWAY_PORT"],
    }
    subprocess.run([shell, flags, text], env=environment, check=True, timeout=60)
    result = load_config(file=tmp_path / "kube" / "config")
    assert (",".join(result.endpoints), result.gateway) == (servers, "127.0.0.1:6443")
    assert result.tls is not None and result.tls.create_ssl_context()


def test_prometheus_scrapes_all_components() -> None:
    result = yaml.safe_load((ROOT / "prometheus.yml").read_text())
    assert set(result["scrape_configs"][0]["dns_sd_configs"][0]["names"]) == set(COMPONENTS)
