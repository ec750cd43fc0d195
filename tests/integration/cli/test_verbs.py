"""The verbs that look at objects and change them, end to end."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from pinnace.api.core_v1_pb2 import Event, Namespace
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.client.client import Client
from pinnace.client.election import Candidate
from pinnace.runtime import build
from tests.builders import make_node, make_pod
from tests.conftest import free_port
from tests.integration.cli.commands import PATIENCE, Commands


async def test_impersonation_has_the_permissions_of_the_other_user(pinnace: Commands) -> None:
    refused = await pinnace("get", "pods", "--as", "jane", "--as-group", "testers")
    assert refused.code != 0 and 'user "jane" ' in refused.err.lower(), refused
    assert (await pinnace("--as", "root", "--as-group=system:masters", "get", "pods")).code == 0
    without = await pinnace("get", "pods", "--as-group", "testers")
    assert (without.code, without.errors[0]) == (2, "error: --as-group requires --as")


async def test_get_as_tables(pinnace: Commands, client: Client) -> None:
    empty = await pinnace("get", "pods")
    assert (empty.code, empty.out, empty.err) == (0, "", "No resources found in default namespace.\n")
    assert (await pinnace("get", "pods", "-A")).err == "No resources found.\n"
    await client.nodes.create(make_node("n").new())
    await client.pods.create(make_pod("a").req(cpu="1").label("app", "web").new())
    await client.pods.create(make_pod("b", "kube-system").req(cpu="1").new())

    done = await pinnace("get", "po")
    assert done.lines[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert [line.split()[:4] for line in done.lines[1:]] == [["a", "0/1", "Pending", "0"]]
    done = await pinnace("get", "pods", "-A", "-o", "wide", "--no-headers")
    assert [line.split()[:2] for line in done.lines] == [["default", "a"], ["kube-system", "b"]]
    done = await pinnace("get", "pods,nodes", "--show-labels")
    assert done.lines[1].startswith("pod/a ") and done.lines[1].endswith("app=web")
    assert done.lines[2] == "" and done.lines[4].startswith("node/n ")
    done = await pinnace("get", "pods", "-L", "app,example.com/tier", "-L", "zone")
    assert done.lines[0].split()[-4:] == ["AGE", "APP", "TIER", "ZONE"]
    assert done.lines[1].split()[-3:] == ["web", "<none>", "<none>"]
    everything = await pinnace("get", "all")
    assert everything.lines[1].startswith("pod/a ") and "node/n" not in everything.out
    assert (await pinnace("get", "pods", "-l", "app=web", "-o", "name", "-A")).lines == ["pod/a"]
    assert (await pinnace("get", "pods", "--field-selector", "metadata.name!=a", "-o", "name", "-A")).lines == ["pod/b"]
    assert (await pinnace("-n", "kube-system", "get", "pods", "-o", "name")).lines == ["pod/b"]
    assert (await pinnace("get", "pod/a", "node/n", "-o", "name")).lines == ["pod/a", "node/n"]


@pytest.mark.parametrize(("how", "said"), [("server", " (server dry run)"), ("client", " (dry run)")])
async def test_a_dry_run_deletes_nothing(pinnace: Commands, client: Client, how: str, said: str) -> None:
    for name in "ab":
        await client.pods.create(make_pod(name).req(cpu="1").new())
    await client.namespaces.create(Namespace(metadata=ObjectMeta(name="team")))
    before = {each.metadata.name: each.metadata.resourceVersion for each in (await client.pods.list("default")).items}
    done = await pinnace("delete", "pods", "--all", f"--dry-run={how}")
    assert (done.code, done.lines) == (0, [f'pod "{name}" deleted from default namespace{said}' for name in "ab"])
    assert (await pinnace("delete", "ns/team", f"--dry-run={how}")).lines == [f'namespace "team" deleted{said}']
    done = await pinnace("delete", "pod", "a", "nope", f"--dry-run={how}")
    assert done.code == 3 and done.lines == [f'pod "a" deleted from default namespace{said}'] and "nope" in done.err
    after = {each.metadata.name: each.metadata.resourceVersion for each in (await client.pods.list("default")).items}
    assert after == before and not (await client.namespaces.get("team")).metadata.HasField("deletionTimestamp")


async def test_what_is_not_there_may_be_no_error(pinnace: Commands, client: Client) -> None:
    await client.nodes.create(make_node("n").new())
    done = await pinnace("get", "node/nope", "node/n", "--ignore-not-found", "-o", "name")
    assert (done.code, done.lines, done.err) == (0, ["node/n"], "")
    for form in ([], ["-o", "json"]):
        done = await pinnace("get", "node", "nope", "--ignore-not-found", *form)
        assert (done.code, done.out, done.err) == (0, "", "")
    assert (await pinnace("get", "node", "nope", "--ignore-not-found=false")).code == 3
    done = await pinnace("get", "nodes", "--chunk-size=500", "--server-print=false", "-o", "name")
    assert (done.code, done.lines) == (0, ["node/n"]), "kubectl's flags that change nothing here"


async def test_get_as_documents(pinnace: Commands, client: Client) -> None:
    created = await client.pods.create(make_pod("a").req(cpu="1").new())
    one = yaml.safe_load((await pinnace("get", "pod", "a", "-o", "yaml")).out)
    assert one["kind"] == "Pod" and one["metadata"]["uid"] == created.metadata.uid
    assert json.loads((await pinnace("get", "pod", "a", "-o", "json")).out) == one
    for words in (["get", "pods"], ["get", "pod/a", "pod/a"]):
        found = json.loads((await pinnace(*words, "-o", "json")).out)
        assert (found["apiVersion"], found["kind"]) == ("v1", "List") and found["items"][0] == one
    assert json.loads((await pinnace("get", "nodes", "-o", "json")).out)["items"] == []


async def test_get_what_one_asks_for(pinnace: Commands, client: Client) -> None:
    for name, cpu in (("web-10", "2"), ("web-2", "500m")):
        await client.pods.create(make_pod(name).req(cpu=cpu).new())
    done = await pinnace(
        "get", "pods", "-o", 'jsonpath={range .items[*]}{.metadata.name}{"\\n"}{end}', "--sort-by", ".metadata.name"
    )
    assert done.lines == ["web-2", "web-10"]
    assert (await pinnace("get", "pod/web-2", "-o", "jsonpath={.metadata.name}{.spec.nodeName}")).out == "web-2"
    by_cpu = "{.spec.containers[0].resources.requests.cpu}"
    done = await pinnace("get", "pods", "--sort-by", by_cpu, "-o", f"custom-columns=NAME:.metadata.name,CPU:{by_cpu}")
    assert [line.split() for line in done.lines] == [["NAME", "CPU"], ["web-2", "500m"], ["web-10", "2"]]
    assert [line.split()[0] for line in (await pinnace("get", "po", "--sort-by", by_cpu)).lines] == ["NAME", "web-2", "web-10"]
    done = await pinnace("get", "pods", "-o", "jsonpath={.items[*}")
    assert done.code == 2 and done.errors[0] == 'error: jsonpath: expected "]", not "}" at character 10 of {.items[*}'


async def test_the_past(pinnace: Commands, client: Client) -> None:
    first = await client.pods.create(make_pod("a").req(cpu="1").new())
    then = first.metadata.resourceVersion
    await client.pods.delete("a", "default")
    two = [(await client.pods.create(make_pod(name).req(cpu="1").new())).metadata.resourceVersion for name in "bcd"][1]

    assert [line.split()[0] for line in (await pinnace("get", "pods", "--at-revision", then)).lines] == ["NAME", "a"]
    assert "a" in (await pinnace("describe", "pod", "a", "--at-revision", then)).lines[0]
    gone = await pinnace("get", "pod", "a", "--at-revision", two)
    assert gone.code != 0 and f'pods "a" not found at revision {two}' in gone.err
    future = await pinnace("get", "pods", "--at-revision", "999999")
    assert "Too large resource version: 999999, current: " in future.errors[0]

    past = Client(client.connection, at=int(two))
    assert [pod.metadata.name for pod in (await past.pods.list(page_size=1)).items] == ["b", "c"]


async def test_missing_objects_are_reported_and_the_others_are_shown(pinnace: Commands, client: Client) -> None:
    await client.pods.create(make_pod("a").req(cpu="1").new())
    done = await pinnace("get", "pods", "nope", "a")
    assert done.code == 3 and done.lines[1].startswith("a ")
    assert done.errors == [
        'Error from server (NotFound): pods "nope" not found',
        "hint: `pinnace get pods -A` lists existing objects",
    ]


async def test_describe_takes_a_prefix(pinnace: Commands, client: Client) -> None:
    """kubectl#892."""
    for name in ("web-1", "web-2", "db"):
        await client.pods.create(make_pod(name).req(cpu="1").new())
    described = (await pinnace("describe", "pod", "web-")).lines
    assert [line.split()[1] for line in described if line.startswith("Name:")] == ["web-1", "web-2"]
    missing = await pinnace("describe", "pod", "web-1", "app-")
    assert missing.code == 3 and missing.errors[0] == 'Error from server (NotFound): pods "app-" not found'
    assert missing.lines[0].split() == ["Name:", "web-1"]


async def test_describe(pinnace: Commands, client: Client) -> None:
    pod = await client.pods.create(make_pod("a").req(cpu="1").new())
    await client.nodes.create(make_node("n").new())
    event = Event(reason="FailedScheduling", type="Warning", message="0/1 nodes are available", reportingComponent="scheduler")
    event.metadata.name, event.metadata.namespace = "e", "default"
    about = event.involvedObject
    about.kind, about.apiVersion, about.namespace, about.name, about.uid = "Pod", "v1", "default", "a", pod.metadata.uid
    event.lastTimestamp.seconds = pod.metadata.creationTimestamp.seconds
    await client.events.record([event])

    words = [line.split() for line in (await pinnace("describe", "pod/a", "node/n", "ns/default")).lines]
    assert ["Name:", "a"] in words and ["Name:", "n"] in words and ["Name:", "default"] in words
    assert any(line[:2] == ["Warning", "FailedScheduling"] for line in words)
    assert ["pods", "0", "(0%)", "0", "(0%)"] in words
    done = await pinnace("events", "--for", "pod/a", "--types", "Warning")
    assert [line.split()[1:4] for line in done.lines] == [["SEEN", "TYPE", "REASON"], ["Warning", "FailedScheduling", "pod/a"]]
    assert "FailedScheduling" in (await pinnace("events", "--types", "normal, WARNING")).out
    assert (await pinnace("events", "--types", "Normal")).out == (await pinnace("events", "--for", "pod/b")).out == ""


async def test_labels_taints_and_cordons(pinnace: Commands, client: Client) -> None:
    for name in ("n1", "n2"):
        await client.nodes.create(make_node(name).condition("Ready", "True").new())
    assert (await pinnace("cordon", "n1")).lines == ["node/n1 cordoned"]
    assert (await pinnace("cordon", "node/n1")).lines == ["node/n1 already cordoned"]
    assert (await client.nodes.get("n1")).spec.unschedulable
    assert (await pinnace("uncordon", "n1")).lines == ["node/n1 uncordoned"]

    done = await pinnace("taint", "nodes", "--all", "gpu=true:NoSchedule")
    assert done.lines == ["node/n1 tainted", "node/n2 tainted"]
    assert (await pinnace("taint", "node", "n1", "gpu=no:NoSchedule")).code == 4
    assert (await pinnace("taint", "n1", "gpu-")).lines == ["node/n1 untainted"]
    assert [len((await client.nodes.get(name)).spec.taints) for name in ("n1", "n2")] == [0, 1]

    assert (await pinnace("label", "nodes", "n1", "n2", "zone=a")).lines == ["node/n1 labeled", "node/n2 labeled"]
    done = await pinnace("label", "node/n1", "zone=b")
    assert done.code == 4 and done.errors == [
        'error: node/n1: label "zone" already has a value (a)',
        "hint: use --overwrite to replace the value",
    ]
    assert (await pinnace("label", "nodes", "-l", "zone=a", "zone-")).lines == ["node/n1 unlabeled", "node/n2 unlabeled"]
    assert (await pinnace("label", "node", "nope", "a=b")).code == 3
    assert (await pinnace("annotate", "node/n1", "why=it is new", "--overwrite")).lines == ["node/n1 annotated"]
    assert (await client.nodes.get("n1")).metadata.annotations["why"] == "it is new"


@pytest.mark.parametrize(
    "words",
    [
        ("label", "pods", "-l", "app=wbe", "tier=front"),
        ("annotate", "pods,nodes", "--all", "why=it is new"),
        ("taint", "nodes", "-l", "app=wbe", "gpu-"),
        ("rollout", "restart", "deployment", "-l", "app=wbe"),
        ("rollout", "undo", "deployment", "-l", "app=wbe"),
        ("pod", "crash", "-l", "app=wbe"),
    ],
)
async def test_a_selector_that_matches_nothing_is_noted(pinnace: Commands, words: tuple[str, ...]) -> None:
    done = await pinnace(*words)
    assert (done.code, done.out, done.err) == (0, "", "note: no resources found: nothing was changed\n")


@pytest.mark.parametrize(
    ("words", "kinds"),
    [
        (("scale", "deployments,rs", "-l", "app=wbe", "--replicas", "0"), "deployments,replicasets"),
        (("cordon", "-l", "zone=x"), "nodes"),
        (("uncordon", "-l", "zone=x"), "nodes"),
        (("drain", "-l", "zone=x"), "nodes"),
        (("node", "fail", "-l", "zone=x"), "nodes"),
    ],
)
async def test_some_verbs_need_a_match(pinnace: Commands, words: tuple[str, ...], kinds: str) -> None:
    """Whoever goes on to switch off the machine that was drained must not be told that all is well."""
    done = await pinnace(*words)
    assert (done.code, done.out) == (3, "")
    assert done.errors == [
        f"error: no {kinds} match: nothing was changed",
        f"hint: `pinnace get {kinds} --show-labels` lists existing objects",
    ]


async def test_empty_result_is_reported(pinnace: Commands) -> None:
    for words in (("describe", "pods"), ("rollout", "history", "deploy"), ("rollout", "status", "deploy")):
        done = await pinnace(*words, "-l", "app=wbe")
        assert (done.code, done.out, done.err) == (0, "", "No resources found in default namespace.\n")
    assert (await pinnace("describe", "nodes,pods", "-A")).err == "No resources found.\n"


async def test_patch(pinnace: Commands, client: Client, tmp_path: Path) -> None:
    for name in "ab":
        await client.pods.create(make_pod(name).req(cpu="1").label("app", "web").new())
    done = await pinnace("patch", "pod", "a", "nope", "b", "-p", '{"metadata": {"labels": {"app": null, "x": "1"}}}')
    assert (done.code, done.lines) == (3, ["pod/a patched", "pod/b patched"])
    assert done.errors[0] == 'Error from server (NotFound): pods "nope" not found'
    assert dict((await client.pods.get("a", "default")).metadata.labels) == {"x": "1"}
    assert (await pinnace("patch", "pod/a", "-p", "metadata: {labels: {x: '1'}}")).lines == ["pod/a patched (no change)"]

    change = tmp_path / "change.yaml"
    change.write_text("status: {message: hello}")
    words = ("patch", "pod/a", "--patch-file", str(change), "--subresource", "status")
    assert (await pinnace(*words, "--dry-run=server")).lines == ["pod/a patched (server dry run)"]
    assert not (await client.pods.get("a", "default")).status.message
    assert (await pinnace(*words)).lines == ["pod/a patched"]
    assert (await client.pods.get("a", "default")).status.message == "hello"

    operations = '[{"op": "test", "path": "/metadata/labels/x", "value": "1"}, {"op": "remove", "path": "/metadata/labels/x"}]'
    assert (await pinnace("patch", "pod/a", "--type", "json", "-p", operations)).lines == ["pod/a patched"]
    done = await pinnace("patch", "pod/a", "--type", "json", "-p", operations)
    assert done.code == 5 and 'test operation does not apply: doc is missing path: "/metadata/labels/x"' in done.errors[0]

    done = await pinnace("patch", "pod", "a", "--type", "merge", "-p", '{"spec": {"containers": [{"imge": "x"}]}}')
    assert done.code == 5 and done.errors == [
        'Error from server (Invalid): Pod "a" is invalid: spec.containers[0].imge: unknown field; did you mean "image"?',
        "hint: the object was not written: correct the errors and try again",
    ]


async def test_delete(pinnace: Commands, client: Client) -> None:
    for name in "abcde":
        await client.pods.create(make_pod(name).req(cpu="1").label("odd", str(name in "ace")).new())
    done = await pinnace("delete", "pod", "a", "nope")
    assert (done.code, done.lines) == (3, ['pod "a" deleted from default namespace'])
    assert (await pinnace("delete", "pod/nope", "--ignore-not-found")).code == 0
    assert (await pinnace("delete", "pods", "-l", "odd=True")).lines == [
        'pod "c" deleted from default namespace',
        'pod "e" deleted from default namespace',
    ]
    assert (await pinnace("delete", "pods", "--all")).lines == [
        'pod "b" deleted from default namespace',
        'pod "d" deleted from default namespace',
    ]
    done = await pinnace("delete", "pods", "--all")
    assert (done.code, done.err) == (0, "note: no resources found: nothing was deleted\n")


async def test_delete_waits_for_what_takes_its_time(pinnace: Commands, client: Client) -> None:
    await client.nodes.create(make_node("n").new())
    await client.pods.create(make_pod("a").req(cpu="1").node("n").new())
    done = await pinnace("delete", "pod", "a", "--timeout", "1s")  # bound, and no kubelet is there to stop it
    assert done.code == 6 and done.lines == ['pod "a" deleted from default namespace']
    assert done.errors[0] == "error: timed out after 1 s waiting for the deletion of pod/a"
    assert (await client.pods.get("a", "default")).metadata.HasField("deletionTimestamp")
    assert (await pinnace("delete", "pod", "a", "--wait=false")).code == 0
    async with pinnace.start("delete", "pod", "a") as waiting:
        assert await waiting.line() == 'pod "a" deleted from default namespace'
        await client.pods.delete("a", "default", grace=0)
        await client.pods.create(make_pod("a").req(cpu="1").new())  # a namesake is not the one that it waits for
        assert (await waiting.end()).code == 0


async def test_only_force_deletes_at_once(pinnace: Commands, client: Client) -> None:
    await client.nodes.create(make_node("n").new())
    await client.pods.create(make_pod("a").req(cpu="1").node("n").new())
    assert (await pinnace("delete", "pod", "a", "--grace-period=0", "--wait=false")).code == 0
    assert (await client.pods.get("a", "default")).metadata.deletionGracePeriodSeconds == 1
    done = await pinnace("delete", "pod", "a", "--force", "--grace-period=0")
    assert (done.code, done.lines) == (0, ['pod "a" force deleted from default namespace'])
    assert done.errors[0].startswith("Warning: ")


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
    assert len((await pinnace("node", "list", "-o", "name")).lines) == 252


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
    candidate = Candidate(client.connection, election, holder, on_elected=elected.put_nowait, on_lost=lambda reason: None)
    campaigning = asyncio.ensure_future(candidate.run())
    await asyncio.wait_for(elected.get(), PATIENCE)
    yield
    await candidate.resign()
    await campaigning


async def test_elections(pinnace: Commands, client: Client) -> None:
    done = await pinnace("leader", "controllers")
    assert done.code == 3 and "`pinnace leader controllers -w` waits for a leader" in done.errors[1], "it is no mistake"
    assert (await pinnace("leader", "list")).code == 3
    async with led(client, "cheap", "mine-0"), led(client, "controllers", "controllers-0"):
        done = await pinnace("leader", "list")
        assert [line.split()[:2] for line in done.lines[1:]] == [["cheap", "mine-0"], ["controllers", "controllers-0"]]
        listed = json.loads((await pinnace("leader", "list", "-o", "json")).out)["items"]
        assert [each["holder"] for each in listed] == ["mine-0", "controllers-0"]
    async with asyncio.timeout(PATIENCE):
        while not await client.elections.history("cheap"):  # noqa: ASYNC110 (it is written down a moment later)
            await asyncio.sleep(0.01)
    done = await pinnace("leader", "cheap")
    assert done.code == 3 and "waits for a leader" in done.errors[1], "somebody has led it"


async def test_version(pinnace: Commands) -> None:
    done = await pinnace("version", "-o", "json")
    versions = json.loads(done.out)
    assert done.code == 0 and set(versions["servers"].values()) == {versions["client"]}
    assert done.err == ""
    assert (await pinnace("version")).lines == [f"Client Version: {build.version()}", f"Server Version: {build.version()}"]


async def test_version_of_servers_that_are_upgraded(pinnace: Commands, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apiserver.services.discovery.version", lambda: "0.2.0")
    done = await pinnace("version")
    assert (done.code, done.lines[1]) == (0, "Server Version: 0.2.0")
    assert done.errors == ["note: the versions of client and servers differ: docs/upgrading.md lists compatible versions"]

    versions = iter(("0.2.0", "0.3.0"))
    monkeypatch.setattr("apiserver.services.discovery.version", lambda: next(versions))
    two = (server, server.replace("127.0.0.1", "localhost"))
    done = await replace(pinnace, servers=(*two, f"127.0.0.1:{free_port()}"))("version")
    assert sorted(line.rpartition(" ")[2] for line in done.lines[1:]) == ["0.2.0", "0.3.0"]
    assert {line.split()[1] for line in done.lines[1:]} == set(two)
    assert done.errors[0].startswith("note: cannot connect to the API server at 127.0.0.1:")


async def test_logs_of_a_pod_that_is_nowhere_say_where_to_look(pinnace: Commands, client: Client) -> None:
    await client.pods.create(make_pod("a").req(cpu="1").new())
    done = await pinnace("logs", "a")
    assert (done.code, done.out) == (5, "")
    assert done.errors == [
        "Error from server (BadRequest): pod a does not have a host assigned",
        "hint: `kubectl describe pod a` shows the reason",
    ]
    assert (await pinnace("logs", "pod/nope")).code == 3


async def test_top_without_kubelets(pinnace: Commands, client: Client) -> None:
    await client.nodes.create(make_node("n").new())
    await client.pods.create(make_pod("a").req(cpu="1").node("n").new())
    nodes = await pinnace("top", "nodes")
    assert (nodes.code, nodes.lines[1].split()) == (0, ["n", *["<unknown>"] * 4])
    assert nodes.err == 'Warning: no metrics of node "n": start the kubelet with --listen\n'
    named = await pinnace("top", "pod", "a", "nobody")
    assert (named.code, named.out) == (1, "")
    assert named.errors[1:] == [
        'Error from server (NotFound): pods "nobody" not found',
        "error: metrics not available for pod/a: it is Pending",
        "hint: `pinnace get pods -A` lists existing objects",
        "hint: `pinnace describe pod/a` shows the reason",
    ]
    for words in (["pods,nodes"], ["deployments"], ["nodes", "--sum"], ["pods", "--show-capacity"], ["pods", "--sort-by", "x"]):
        assert (await pinnace("top", *words)).code == 2
    assert (await pinnace("auth", "can-i", "list", "pods.metrics.k8s.io")).lines[0].startswith("yes")
