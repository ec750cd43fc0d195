"""`apply`, with good manifests and bad: one line for each thing that is wrong, a hint, an exit code; and nothing changed."""

import asyncio
import os
from pathlib import Path

import pytest

from pinnace.api.resources import DEPLOYMENTS
from pinnace.client.client import Client
from tests.builders import make_pod
from tests.conftest import free_port
from tests.integration.cli.commands import PATIENCE, Commands, command
from tests.integration.cli.forkserver import ForkServer
from tests.integration.processes import NOWHERE

EXAMPLES = Path(__file__).parents[3] / "examples"
POD = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: main, image: app}]}}"


def pod(name: str = "a", container: str = "", metadata: str = "", spec: str = "") -> str:
    main = f"{{name: main, image: app{container}}}"
    return f"{{apiVersion: v1, kind: Pod, metadata: {{name: {name}{metadata}}}, spec: {{containers: [{main}]{spec}}}}}"


async def test_created_unchanged_configured(pinnace: Commands, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "b.yaml").write_text(pod("b") + "\n---\n" + pod("c", metadata=", namespace: space"))
    (tmp_path / "more" / "a.json").write_text('{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "space"}}')
    (tmp_path / "README.md").write_text("no manifest")
    done = await pinnace("apply", "-f", str(tmp_path), "-R")
    assert (done.code, done.lines) == (0, ["namespace/space created", "pod/b created", "pod/c created"]), done.err
    assert (await pinnace("apply", "-f", str(tmp_path))).lines == ["pod/b unchanged", "pod/c unchanged"]
    (tmp_path / "b.yaml").write_text(pod("b", metadata=", labels: {x: w}"))
    assert (await pinnace("apply", "-f", str(tmp_path))).lines == ["pod/b configured"]
    assert (await pinnace("get", "pods", "-l", "x=w", "-o", "name")).lines == ["pod/b"]
    assert (await pinnace("delete", "-f", str(tmp_path / "b.yaml"))).lines == ['pod "b" deleted from default namespace']


REPLICAS = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: %d}}"


async def test_server_side_apply(pinnace: Commands, client: Client) -> None:
    labels = "{matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}"
    web = f"{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web}}, spec: {{replicas: 2, selector: {labels}}}}}"
    applying = ("apply", "--server-side", "-f", "-")
    dry = await pinnace(*applying, "--dry-run=server", stdin=web)
    assert dry.lines == ["deployment.apps/web serverside-applied (server dry run)"], dry.err
    done = await pinnace(*applying, stdin=web)
    assert done.lines == ["deployment.apps/web serverside-applied"], done.err
    other = (*applying, "--field-manager", "other")
    refused = await pinnace(*other, stdin=REPLICAS % 3)
    assert (refused.code, refused.lines) == (4, [])
    assert 'Apply failed with 1 conflict: conflict with "pinnace": .spec.replicas' in refused.err
    assert "--force-conflicts" in refused.err
    forced = await pinnace(*other, "--force-conflicts", stdin=REPLICAS % 3)
    assert (forced.code, (await client.of(DEPLOYMENTS).get("web", "default")).spec.replicas) == (0, 3), forced.err
    shown = await pinnace("get", "deployment", "web", "-o", "yaml", "--show-managed-fields")
    assert "manager: other" in shown.out and "manager: pinnace" in shown.out
    assert "managedFields" not in (await pinnace("get", "deployments", "-o", "yaml")).out
    assert (await pinnace("apply", "-f", "-", "--force-conflicts", stdin=web)).code == 2


async def test_server_side_apply_replaces_client_side_apply(pinnace: Commands, client: Client) -> None:
    """Fields of the last applied configuration are no conflicts; each kind of apply knows the other's configuration."""
    await pinnace("apply", "-f", "-", stdin=pod("a", metadata=", labels: {x: w, z: z}"))
    done = await pinnace("apply", "--server-side", "-f", "-", stdin=pod("a", metadata=", labels: {x: changed}"))
    assert done.lines == ["pod/a serverside-applied"], done.err
    assert dict((await client.pods.get("a", "default")).metadata.labels)["x"] == "changed"
    again = await pinnace("apply", "-f", "-", stdin=pod("a", metadata=", labels: {x: changed}"))
    assert again.lines == ["pod/a unchanged"], again.err


async def test_the_examples_go_together(pinnace: Commands) -> None:
    """No two of them are the same object, or the second would change the first."""
    first = await pinnace("apply", "-f", str(EXAMPLES))
    assert (first.code, first.err) == (0, "")
    assert {line.rpartition(" ")[2] for line in first.lines} == {"created"}
    again = await pinnace("apply", "-f", str(EXAMPLES))
    assert (again.code, len(again.lines)) == (0, len(first.lines)), again.err
    assert {line.rpartition(" ")[2] for line in again.lines} == {"unchanged"}


NOTHING = """
apiVersion: v1
kind: Service
metadata: {name: web, creationTimestamp: null}
spec: {type: NodePort, clusterIP: "", selector: {}, ports: [{port: 80, nodePort: 0, protocol: ""}], sessionAffinity: ""}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: null, generation: 0}
spec:
  paused: false
  minReadySeconds: 0
  strategy: null
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      restartPolicy: ""
      hostNetwork: false
      volumes: [{name: v, emptyDir: {medium: ""}}]
      tolerations: []
      containers: [{name: main, image: app, imagePullPolicy: "", args: [], ports: [{containerPort: 80, hostPort: 0}]}]
"""


async def test_what_is_nothing_already_is_unchanged(pinnace: Commands, client: Client) -> None:
    first = await pinnace("apply", "-f", "-", stdin=NOTHING)
    assert first.lines == ["service/web created", "deployment.apps/web created"], first.err
    unchanged = ["service/web unchanged", "deployment.apps/web unchanged"]
    assert (await pinnace("apply", "-f", "-", stdin=NOTHING)).lines == unchanged
    dry = await pinnace("apply", "-f", "-", "--dry-run=server", stdin=NOTHING)
    assert dry.lines == [f"{line} (server dry run)" for line in unchanged]
    deployments = client.of(DEPLOYMENTS)
    await deployments.patch("web", "default", {"spec": {"paused": True}})
    unchanged[1] = "deployment.apps/web configured"
    assert (await pinnace("apply", "-f", "-", stdin=NOTHING)).lines == unchanged
    assert not (await deployments.get("web", "default")).spec.paused


async def test_dry_run(pinnace: Commands, client: Client) -> None:
    done = await pinnace("apply", "-f", "-", "--dry-run", "server", stdin=POD)
    assert (done.code, done.lines) == (0, ["pod/a created (server dry run)"])
    assert not (await client.pods.list()).items
    assert (await pinnace("apply", "-f", "-", "--dry-run=server", stdin=pod("Bad_Name"))).code == 5


async def test_an_output_that_cannot_be_written(pinnace: Commands, client: Client, tmp_path: Path) -> None:
    """The first that cannot be told of is the last that is made, and that is said."""
    manifests = tmp_path / "all.yaml"
    manifests.write_text("\n---\n".join(["{apiVersion: v1, kind: Namespace, metadata: {name: space}}", POD]))
    script = f"exec {' '.join(command('apply', '-f', str(manifests)))} > /dev/full"
    environment = {**os.environ, "KUBECONFIG": str(NOWHERE), "PINNACE_SERVER": pinnace.servers[0]}
    shell = await asyncio.create_subprocess_exec("bash", "-c", script, stderr=-1, env=environment)
    _, err = await asyncio.wait_for(shell.communicate(), PATIENCE)
    assert shell.returncode == 7
    assert err.decode().splitlines() == [
        "error: cannot write the output: no space left on device",
        "hint: changes made so far remain",
    ]
    assert await client.namespaces.get("space") and not (await client.pods.list()).items


async def test_many(pinnace: Commands, client: Client) -> None:
    text = "\n---\n".join([*(pod(f"p{i}") for i in range(450)), pod("Bad_Name"), pod("last")])
    done = await pinnace("apply", "-f", "-", stdin=text)
    assert (done.code, len(done.lines), done.lines[-1]) == (5, 451, "pod/last created")
    assert done.errors[0].startswith('stdin:901: Error from server (Invalid): Pod "Bad_Name" is invalid: metadata.name: ')
    assert len(done.errors) == 2 and done.errors[1].startswith("hint: ")
    assert len((await client.pods.list()).items) == 451


BAD = {
    "unknown field": (
        pod(spec=", tolerations: [{efect: x}]"),
        'spec.tolerations[0].efect: unknown field; did you mean "effect"?',
    ),
    "wrong type": (pod(spec=", priority: high"), "spec.priority: expected a whole number"),
    "missing name": (POD.replace("name: a}", "labels: {}}"), "metadata.name: required"),
    "bad quantity": (pod(container=", resources: {requests: {cpu: 5x}}"), "spec.containers[0].resources.requests[cpu]: "),
    "negative request": (pod(container=", resources: {requests: {cpu: -1}}"), "spec.containers[0].resources.requests[cpu]: "),
    "duplicate port": (
        pod(container=", ports: [{containerPort: 1, hostPort: 9}, {containerPort: 2, hostPort: 9}]"),
        "spec.containers[0].ports[1].hostPort: Duplicate value",
    ),
    "invalid label": (pod(metadata=', labels: {"a b": x}'), "metadata.labels: Invalid value"),
    "unknown kind": (POD.replace("Pod", "Pot"), 'kind: unknown kind "Pot"; did you mean "Pod"?'),
    "unknown version": (POD.replace("v1", "v2"), 'apiVersion: "v2" has no kind "Pod"'),
    "too large an object": (pod(metadata=f", annotations: {{x: {'y' * (2 << 20)}}}"), "the maximum is 1,048,576"),
    "too large a text": (pod(metadata=f", annotations: {{x: {'y' * (5 << 20)}}}"), "exceeds the maximum size"),
    "no YAML": ("}", "invalid YAML"),
    "no manifest": ("[1, 2]", "not an object"),
}


@pytest.mark.parametrize("case", BAD)
async def test_bad_manifests(case: str, pinnace: Commands, client: Client) -> None:
    text, message = BAD[case]
    await client.pods.create(make_pod("there").req(cpu="1").new())
    before = await client.pods.list()
    done = await pinnace("apply", "-f", "-", stdin=text)
    problem, hint = done.errors
    assert done.code == 5 and not done.out
    assert problem.startswith("stdin:1: ") and message in problem
    assert hint.startswith("hint: ")
    assert await client.pods.list() == before, "nothing was changed, not even a revision"


async def test_all_errors_of_all_files_are_reported_before_any_change(
    pinnace: Commands, client: Client, tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text(pod("fine") + "\n---\n" + pod(spec=", priority: high,\n  x: 1"))
    (tmp_path / "b.yaml").write_text("kind: Pot")
    done = await pinnace("apply", "-f", str(tmp_path))
    assert done.code == 5
    assert [line.removeprefix(f"{tmp_path}/").split(": ")[0] for line in done.errors] == [
        "a.yaml:3",
        "a.yaml:4",
        "b.yaml:1",
        "hint",
    ]
    assert not (await client.pods.list()).items


async def test_unknown_fields_may_be_ignored(pinnace: Commands) -> None:
    text = pod(spec=", efect: x")
    assert (await pinnace("apply", "-f", "-", "--validate", "ignore", stdin=text)).lines == ["pod/a created"]


async def test_a_stale_resource_version(pinnace: Commands, client: Client) -> None:
    await pinnace("apply", "-f", "-", stdin=POD)
    before = await client.pods.get("a", "default")
    done = await pinnace("apply", "-f", "-", stdin=pod(metadata=', resourceVersion: "1", labels: {x: w}'))
    assert done.code == 4 and done.errors[0].startswith(
        'stdin:1: Error from server (Conflict): pods "a": resourceVersion 1 is stale'
    )
    assert done.errors[1].startswith("hint: ") and await client.pods.get("a", "default") == before


async def test_a_missing_namespace_and_contradicting_ones(pinnace: Commands) -> None:
    done = await pinnace("apply", "-f", "-", "-n", "nowhere", stdin=POD)
    assert done.code == 3 and done.errors[0] == 'stdin:1: Error from server (NamespaceNotFound): namespaces "nowhere" not found'
    done = await pinnace("apply", "-f", "-", "-n", "nowhere", stdin=pod(metadata=", namespace: default"))
    assert done.code == 5 and done.errors[0].startswith(
        'stdin:1: metadata.namespace: "default" does not match the namespace of -n'
    )


async def test_files_that_cannot_be_read(pinnace: Commands, tmp_path: Path) -> None:
    assert (await pinnace("apply")).code == 2
    assert (
        (await pinnace("apply", "-f", str(tmp_path / "nope.yaml"))).errors[0].endswith("nope.yaml: no such file or directory")
    )
    assert (await pinnace("apply", "-f", str(tmp_path))).code == 2
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00")
    assert (await pinnace("apply", "-f", str(tmp_path))).code == 5
    (tmp_path / "x.yaml").write_text("# nothing\n")
    assert (await pinnace("apply", "-f", str(tmp_path))).code == 2


async def test_no_server(tmp_path: Path, forkserver: ForkServer) -> None:
    ports = free_port(), free_port()
    nobody = Commands([f"127.0.0.1:{port}" for port in ports], forkserver)
    for words in (["get", "pods"], ["apply", "-f", "-"], ["leader", "-w"]):
        done = await nobody(*words, stdin=POD)
        assert done.code == 6 and not done.out
        assert done.errors[0] == "error: no API server answers at " + ", ".join(
            f"127.0.0.1:{port} (connection refused)" for port in ports
        )
        assert "`pinnace up`" in done.errors[1] and "--server" in done.errors[1]
    assert (await nobody("version")).code == 0
    lost = Commands([], forkserver, {"HOME": str(tmp_path), "KUBECONFIG": ""})
    done = await lost("get", "pods")
    assert done.code == 6 and "no configuration has been provided" in done.errors[0] and "`pinnace up`" in done.errors[1]
    assert (await lost("get", "pods", "--server", "a:b")).code == 2
