"""`config`: contexts, as they are typed; what commands use afterwards."""

import json
from pathlib import Path

import pytest
import yaml

from pinnace.client.config import ClientConfig, write_context
from tests.integration.cli.commands import Commands


@pytest.fixture
def file(tmp_path: Path, server: str, pinnace: Commands) -> Path:
    """With a context of the server, and one of nothing."""
    write_context("here", ClientConfig((server,)), file=tmp_path / "config")
    write_context("nowhere", ClientConfig(("127.0.0.1:1",)), file=tmp_path / "config")
    pinnace.environment = {"PINNACE_CONFIG": str(tmp_path / "config"), "PINNACE_SERVER": ""}
    return tmp_path / "config"


async def test_commands_use_the_context_that_is_chosen(pinnace: Commands, file: Path, server: str) -> None:
    assert (await pinnace("get", "pods")).code == 6
    assert (await pinnace("config", "use-context", "here")).lines == ['Switched to context "here".']
    assert (await pinnace("config", "current-context")).out == "here\n"
    assert (await pinnace("get", "pods")).code == 0
    table = await pinnace("config", "get-contexts")
    assert [line.split() for line in table.lines] == [
        ["CURRENT", "NAME", "CLUSTER", "SERVERS", "USER", "NAMESPACE"],
        ["*", "here", "here", server, "here"],
        ["nowhere", "nowhere", "127.0.0.1:1", "nowhere"],
    ]


async def test_a_namespace_to_work_in(pinnace: Commands, file: Path) -> None:
    await pinnace("config", "use-context", "here")
    assert (await pinnace("create", "namespace", "team")).code == 0
    done = await pinnace("config", "set-context", "--current", "--namespace", "team")
    assert (done.code, done.lines) == (0, ['Context "here" modified.'])
    await pinnace("create", "job", "one", "--image", "app")
    assert (await pinnace("get", "jobs", "-A", "-o", "jsonpath={.items[*].metadata.namespace}")).out.strip() == "team"
    least = json.loads((await pinnace("config", "view", "--minify", "-o", "json")).out)
    assert least["contexts"] == [{"name": "here", "context": {"cluster": "here", "user": "here", "namespace": "team"}}]


async def test_contexts_are_renamed_and_deleted(pinnace: Commands, file: Path) -> None:
    assert (await pinnace("config", "rename-context", "nowhere", "there")).lines == ['Context "nowhere" renamed to "there".']
    done = await pinnace("config", "delete-context", "there")
    assert (done.lines, len(done.errors)) == ([f"deleted context there from {file}"], 1)
    assert (await pinnace("config", "current-context")).code == 3
    assert [each["name"] for each in yaml.safe_load((await pinnace("config", "view")).out)["contexts"]] == ["here"]


async def test_config_errors_name_the_file_and_the_existing_entries(pinnace: Commands, file: Path, tmp_path: Path) -> None:
    done = await pinnace("config", "use-context", "gone")
    assert (done.code, done.errors[0]) == (2, f'error: {file}: no context "gone" (known: here, nowhere)')
    for wrong in ([], ["here"], ["here", "--current", "-n", "a"], ["here", "-n", "A_"], ["--current", "--cluster", "gone"]):
        assert (await pinnace("config", "set-context", *wrong)).code == 2, wrong
    pinnace.environment = {"PINNACE_CONFIG": str(tmp_path / "none"), "PINNACE_SERVER": ""}
    done = await pinnace("config", "get-contexts")
    assert (done.code, done.errors[0]) == (3, f"error: no configuration has been provided: {tmp_path / 'none'} does not exist")
