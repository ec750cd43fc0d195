"""`doctor`: a line for each check, 10 for a problem, and nothing is changed."""

import json
from collections.abc import Callable
from pathlib import Path

from pinnace.client.client import Client
from pinnace.client.config import ClientConfig
from pinnace.client.contexts import write_context
from pinnace.cluster.spec import ClusterSpec, ProcessPlan, encode_state, initial_state
from tests.integration.cli.commands import Commands

LOCAL = {"disk", "memory", "files", "ports", "cluster"}


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def levels(text: str) -> dict[str, str]:
    return {load["check"]: load["level"] for load in json.loads(text)}


async def test_server_elsewhere(pinnace: Commands, client: Client) -> None:
    before = {item.metadata.name for item in (await client.namespaces.list()).items}
    done = await pinnace("doctor", "-o", "json")
    result = levels(done.out)
    assert (done.code, result.pop("leaders"), result.pop("etcd") in ("ok", "warning")) == (10, "problem", True)
    assert result == dict.fromkeys(("configuration", "python", "packages", "server", "clock"), "ok")
    assert {item.metadata.name for item in (await client.namespaces.list()).items} == before


async def test_server_that_does_not_answer(pinnace: Commands) -> None:
    done = await pinnace("doctor", "--server", "127.0.0.1:1")
    assert done.code == 10
    assert "problem  server         no API server answers at 127.0.0.1:1 (connection refused)" in done.lines
    assert not any("leaders" in line or "clock" in line for line in done.lines)


async def test_local_cluster_whose_processes_are_gone(pinnace: Commands, tmp_path: Path, free_port: Callable[[], int]) -> None:
    address = f"127.0.0.1:{free_port()}"
    plan = ProcessPlan("apiserver", "apiserver-0", address, address, ("true",))
    (tmp_path / "cluster.json").write_text(encode_state(initial_state(ClusterSpec(data_dir=tmp_path), [plan], [], 0.0)))
    done = await pinnace("doctor", "--data-dir", str(tmp_path))
    assert done.code == 10
    assert any(line.startswith("problem  processes      apiserver-0 is not running") for line in done.lines)
    assert names(tmp_path) == ["cluster.json"]


async def test_doctor_without_a_cluster_or_configuration(pinnace: Commands, tmp_path: Path) -> None:
    pinnace.environment = {"KUBECONFIG": str(tmp_path / "config"), "PINNACE_SERVER": ""}
    done = await pinnace("doctor", "--data-dir", str(tmp_path / "data"), "-o", "json")
    result = levels(done.out)
    assert result.keys() >= LOCAL and (result["configuration"], result["cluster"]) == ("warning", "ok")
    assert names(tmp_path) == []


async def test_context_that_is_named_goes_before_a_folder_in_the_environment(
    pinnace: Commands, server: str, tmp_path: Path
) -> None:
    file = write_context("here", ClientConfig((server,)), file=tmp_path / "config")
    folder = str(tmp_path / "data")
    pinnace.environment = {"KUBECONFIG": str(file), "PINNACE_SERVER": "", "PINNACE_DATA_DIR": folder}
    assert levels((await pinnace("doctor", "-o", "json")).out).keys() >= LOCAL
    assert not levels((await pinnace("doctor", "-o", "json", "--context", "here")).out).keys() & LOCAL
