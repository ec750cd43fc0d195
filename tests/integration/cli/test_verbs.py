"""Our verbs, end to end."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from pinnace.client.client import Client
from pinnace.client.election import LeaderElector
from pinnace.runtime import build
from tests.builders import make_node
from tests.conftest import free_port
from tests.integration.cli.commands import PATIENCE, Commands


async def test_impersonation_has_the_permissions_of_the_other_user(pinnace: Commands) -> None:
    refused = await pinnace("etcd", "ls", "--as", "jane", "--as-group", "testers")
    assert refused.code != 0 and 'user "jane" ' in refused.err.lower(), refused
    assert (await pinnace("--as", "root", "--as-group=system:masters", "etcd", "ls")).code == 0
    without = await pinnace("etcd", "ls", "--as-group", "testers")
    assert (without.code, without.errors[0]) == (2, "error: --as-group requires --as")


@pytest.mark.parametrize(("words", "kinds"), [("pod crash -l app=wbe", "pods"), ("node fail -l zone=x", "nodes")])
async def test_faults_need_a_match(pinnace: Commands, words: str, kinds: str) -> None:
    done = await pinnace(*words.split())
    assert (done.code, done.out) == (3, "")
    assert done.errors == [
        f"error: no {kinds} match: nothing was changed",
        f"hint: `pinnace get {kinds} --show-labels` lists existing objects",
    ]


async def test_faults_of_named_and_selected_nodes(pinnace: Commands, client: Client) -> None:
    for name in "abc":
        await client.nodes.create(make_node(name).label("pinnace.io/fleet", "f").label("zone", str(name < "c")).new())
    done = await pinnace("node", "fail", "c", "nope", "node/c")
    assert (done.code, done.lines) == (3, ["node/c failed"]) and 'nodes "nope" not found' in done.err
    assert (await pinnace("node", "freeze", "-l", "zone=True")).lines == ["node/a frozen", "node/b frozen"]


async def test_add_nodes(pinnace: Commands, client: Client) -> None:
    done = await pinnace("node", "add")
    assert done.code == 3 and done.errors == [
        "error: no node belongs to a fleet yet", "hint: name the kubelet's fleet with --fleet"
    ]  # fmt: skip
    assert (await pinnace("node", "add", "--fleet", "f")).lines == ["node/node-0 created"]
    done = await pinnace("node", "add", "--count", "250", "--cpu", "64", "--memory", "1Ti")
    assert (done.code, len(done.lines), done.lines[-1]) == (0, 250, "node/node-250 created")
    node = await client.nodes.get("node-250")
    assert node.metadata.labels["pinnace.io/fleet"] == "f" and node.status.allocatable["cpu"].string == "64"
    assert [taint.key for taint in node.spec.taints] == ["node.kubernetes.io/not-ready"]
    assert (await pinnace("node", "add", "--prefix", "x-", "--fleet", "g")).lines == ["node/x-0 created"]
    done = await pinnace("node", "add")
    assert done.code == 2 and done.errors[0] == "error: there are 2 fleets: f, g"
    assert len((await client.nodes.list()).items) == 252


async def test_leader(pinnace: Commands) -> None:
    done = await pinnace("leader")
    assert done.code == 3 and done.errors[0] == 'error: election "scheduler" has no leader'
    done = await pinnace("leader", "history", "-o", "json")
    assert done.code == 3 and done.errors[0] == 'error: election "scheduler" has had no leader yet'
    done = await pinnace("leader", "transfer", "--to", "b")
    assert done.code == 3 and done.errors[0] == 'error: election "scheduler" has no leader'
    done = await pinnace("leader", "trasnfer")
    assert done.code == 3 and 'did you mean "transfer"?' in done.errors[1]
    done = await pinnace("leader", "transfer", "scheduler-1")
    assert done.code == 3 and done.errors[1].endswith("name the next leader with --to")


@asynccontextmanager
async def led(client: Client, election: str, holder: str) -> AsyncIterator[None]:
    """While somebody leads it, who then resigns."""
    elected: asyncio.Queue[int] = asyncio.Queue()
    candidate = LeaderElector(client.connection, election, holder, on_elected=elected.put_nowait, on_lost=lambda reason: None)
    campaigning = asyncio.ensure_future(candidate.run())
    await asyncio.wait_for(elected.get(), PATIENCE)
    yield
    await candidate.release()
    await campaigning


async def test_elections(pinnace: Commands, client: Client) -> None:
    done = await pinnace("leader", "controllers")
    assert done.code == 3 and "`pinnace leader controllers -w` waits for a leader" in done.errors[1], "it is no mistake"
    assert (await pinnace("leader", "list")).code == 3
    async with led(client, "cheap", "mine-0"), led(client, "controllers", "controllers-0"):
        done = await pinnace("leader", "list")
        assert [line.split()[:2] for line in done.lines[1:]] == [["cheap", "mine-0"], ["controllers", "controllers-0"]]
        listed = json.loads((await pinnace("leader", "list", "-o", "json")).out)["items"]
        assert [item["holder"] for item in listed] == ["mine-0", "controllers-0"]
    async with asyncio.timeout(PATIENCE):
        while not await client.elections.list_terms("cheap"):  # noqa: ASYNC110 (it is written down a moment later)
            await asyncio.sleep(0.01)
    done = await pinnace("leader", "cheap")
    assert done.code == 3 and "waits for a leader" in done.errors[1], "somebody has led it"


async def test_version(pinnace: Commands) -> None:
    done = await pinnace("version", "-o", "json")
    versions = json.loads(done.out)["pinnace"]
    assert done.code == 0 and set(versions["servers"].values()) == {versions["client"]}
    ours = [f"Pinnace Client Version: {build.build_version()}", f"Pinnace Server Version: {build.build_version()}"]
    assert (await pinnace("version")).lines[-2:] == ours


async def test_version_of_servers_that_are_upgraded(pinnace: Commands, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinnace.apiserver.services.discovery.build_version", lambda: "0.2.0")
    done = await pinnace("version")
    assert (done.code, done.lines[-1]) == (0, "Pinnace Server Version: 0.2.0")
    assert done.errors[-1] == "note: the versions of client and servers differ: docs/upgrading.md lists compatible versions"

    versions = iter(("0.2.0", "0.3.0"))
    monkeypatch.setattr("pinnace.apiserver.services.discovery.build_version", lambda: next(versions))
    two = (server, server.replace("127.0.0.1", "localhost"))
    done = await replace(pinnace, servers=(*two, f"127.0.0.1:{free_port()}"))("version")
    assert sorted(line.rpartition(" ")[2] for line in done.lines[-2:]) == ["0.2.0", "0.3.0"]
    assert {line.split()[2] for line in done.lines[-2:]} == set(two)
    assert any(line.startswith("note: cannot connect to the API server at 127.0.0.1:") for line in done.errors)
