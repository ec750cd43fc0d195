"""`pinnace etcd`: the keys of the store, decoded."""

import asyncio
import json
from base64 import b64encode

import yaml

from pinnace.api.core_v1_pb2 import Secret
from pinnace.api.resources import SECRETS
from pinnace.client.client import Client
from pinnace.client.election import LeaderElector
from tests.builders import make_node, make_pod
from tests.integration.cli.commands import PATIENCE, Commands

POD_KEY = "/registry/pods/default/a"


async def test_ls_shows_revisions_and_sizes(pinnace: Commands, client: Client) -> None:
    await client.nodes.create(make_node("n").new())
    pod = await client.pods.create(make_pod("a").req(cpu="1").new())
    done = await pinnace("etcd", "ls", "pods")
    assert done.lines[0].split() == ["KEY", "MOD-REVISION", "VERSION", "LEASE", "BYTES"]
    (row,) = [line.split() for line in done.lines[1:]]
    assert row[:4] == [POD_KEY, pod.metadata.resourceVersion, "1", "<none>"] and int(row[4]) > 50
    names = await pinnace("etcd", "ls", "-o", "name")
    assert POD_KEY in names.lines and "/registry/nodes/n" in names.lines
    assert (await pinnace("etcd", "ls", "pods/nowhere/")).err == "note: no keys found with the prefix /registry/pods/nowhere/\n"


async def test_get_decodes_the_value_also_at_an_older_revision(pinnace: Commands, client: Client) -> None:
    pod = await client.pods.create(make_pod("a").req(cpu="1").new())
    await client.pods.create(make_pod("ab").req(cpu="1").new())
    created = pod.metadata.resourceVersion

    def change(new: object) -> None:
        new.metadata.labels["app"] = "web"

    changed = await client.pods.modify("a", "default", change)
    shown = yaml.safe_load((await pinnace("etcd", "get", POD_KEY)).out)
    assert shown["key"] == POD_KEY and shown["version"] == 2
    assert (shown["createRevision"], shown["modRevision"]) == (int(created), int(changed.metadata.resourceVersion))
    assert shown["value"]["kind"] == "Pod" and shown["value"]["metadata"]["labels"] == {"app": "web"}
    before = json.loads((await pinnace("etcd", "get", "pods/default/a", "--revision", created, "-o", "json")).out)
    assert before["modRevision"] == int(created) and "labels" not in before["value"]["metadata"]
    both = yaml.safe_load((await pinnace("etcd", "get", "pods/default/", "--prefix")).out)
    assert [item["key"] for item in both["items"]] == [POD_KEY, f"{POD_KEY}b"]


async def test_get_names_a_missing_key_and_a_prefix(pinnace: Commands) -> None:
    done = await pinnace("etcd", "get", "pods/default/nope")
    assert done.code == 3 and done.errors[0].endswith('key "/registry/pods/default/nope" not found')
    done = await pinnace("etcd", "get", "pods/")
    assert done.code == 2 and '"pods/" is a prefix, not a key' in done.err
    done = await pinnace("etcd", "get", "pods/default/a", "--revision", "999999")
    assert done.code != 0 and "revision 999999 is in the future" in done.err


async def test_lock_of_an_election_is_a_key_with_a_lease(pinnace: Commands, client: Client) -> None:
    elected = asyncio.Event()
    candidate = LeaderElector(client.connection, "other", "me", on_elected=lambda _: elected.set(), on_lost=lambda reason: None)
    campaign = asyncio.create_task(candidate.run())
    try:
        await asyncio.wait_for(elected.wait(), PATIENCE)
        shown = yaml.safe_load((await pinnace("etcd", "get", "elections/other")).out)
        assert shown["value"]["holder"] == "me" and "lease" in shown and shown["secondsSinceRenewal"] < 60
        assert "secretHash" not in shown["value"] and "secret_hash" not in shown["value"]
        await candidate.release()
    finally:
        campaign.cancel()
    gone = await pinnace("etcd", "get", "elections/other")
    assert gone.code == 3


async def test_value_of_a_secret_is_never_shown(pinnace: Commands, client: Client) -> None:
    secret = Secret(data={"password": b"hunter2"})
    secret.metadata.name, secret.metadata.namespace = "s", "default"
    await client.of(SECRETS).create(secret)
    done = await pinnace("etcd", "get", "secrets/default/s", "-o", "json")
    shown = json.loads(done.out)
    assert "value" not in shown and shown["bytes"] > 0
    assert "hunter2" not in done.out and b64encode(b"hunter2").decode() not in done.out


async def test_watch_prints_writes_in_order_from_a_revision(pinnace: Commands, client: Client) -> None:
    pod = await client.pods.create(make_pod("a").req(cpu="1").new())
    async with pinnace.start("etcd", "watch", "pods", "nodes", "--revision", pod.metadata.resourceVersion) as watching:
        assert (await watching.line()).split() == ["REVISION", "OPERATION", "KEY", "LEASE"]
        assert (await watching.line()).split()[:3] == [pod.metadata.resourceVersion, "PUT", POD_KEY]
        node = await client.nodes.create(make_node("n").new())
        assert (await watching.line()).split()[:3] == [node.metadata.resourceVersion, "PUT", "/registry/nodes/n"]
        await client.pods.delete("a", "default", grace=0)
        assert (await watching.line()).split()[1:3] == ["DELETE", POD_KEY]
        done = await watching.interrupt()
        assert done.code == 130
