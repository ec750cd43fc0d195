"""`create`: objects of manifests, and simple ones without; what is there already is refused."""

import yaml

from tests.integration.cli.commands import Commands

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {generateName: pi-}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: perl}]}}}
"""
TWO = """
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: space}
spec: {containers: [{name: main, image: app}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: space}
"""


async def test_manifests_are_created_once(pinnace: Commands) -> None:
    done = await pinnace("create", "-f", "-", stdin=TWO)
    assert (done.code, done.lines) == (0, ["namespace/space created", "pod/a created"]), done.err
    again = await pinnace("create", "-f", "-", stdin=TWO + "---" + TWO.replace("name: a", "name: b"))
    assert (again.code, again.lines) == (4, ["pod/b created"])
    assert [line.partition(": ")[0] for line in again.errors] == ["stdin:7", "stdin:16", "stdin:2", "hint"]


async def test_what_does_not_do_what_it_seems_to_is_told_once(pinnace: Commands) -> None:
    spec = "{containers: [{name: c, image: i, resources: {requests: {memory: 1m}}}]}"
    odd = f"{{apiVersion: v1, kind: Pod, metadata: {{name: %s}}, spec: {spec}}}"
    done = await pinnace("create", "-f", "-", stdin=f"{odd % 'x'}\n---\n{odd % 'y'}")
    assert (done.code, done.lines) == (0, ["pod/x created", "pod/y created"])
    warning = 'spec.containers[0].resources.requests[memory]: "1m" is in thousandths of a byte; did you mean "1M"?'
    assert done.errors == [f"Warning: {warning}"]


async def test_a_name_is_made_up_each_time(pinnace: Commands) -> None:
    names = {(await pinnace("create", "-f", "-", "-o", "name", stdin=JOB)).out for _ in range(2)}
    assert len(names) == 2
    assert all(name.startswith("job.batch/pi-") for name in names)


async def test_simple_ones_need_no_manifest(pinnace: Commands) -> None:
    assert (await pinnace("create", "namespace", "team")).lines == ["namespace/team created"]
    line = ("create", "deployment", "web", "--image", "registry.example.com/web/nginx:1.27", "-r", "3", "-n", "team")
    assert (await pinnace(*line)).lines == ["deployment.apps/web created"]
    path = "jsonpath={.spec.replicas} {.spec.selector.matchLabels.app} {.spec.template.spec.containers[0].name}"
    assert (await pinnace("get", "deployment", "web", "-n", "team", "-o", path)).out.split() == ["3", "web", "nginx"]
    assert (await pinnace("create", "job", "one", "--image", "app", "--", "sh", "-c", "exit 0")).lines == [
        "job.batch/one created"
    ]
    command = await pinnace("get", "job", "one", "-o", "jsonpath={.spec.template.spec.containers[0].command}")
    assert command.out.strip() == '["sh","-c","exit 0"]'
    assert (await pinnace("create", "deployment", "web")).code == 2
    assert (await pinnace("create", "deploy", "two", "--image", "a:1", "--image", "b:2")).code == 0
    images = await pinnace("get", "deploy", "two", "-o", "jsonpath={.spec.template.spec.containers[*].image}")
    assert images.out.split() == ["a:1", "b:2"]
    assert (await pinnace("create", "deploy", "three", "--image", "a", "--image", "b", "--", "sh")).code == 2
    other = await pinnace("create", "service", "web")
    assert (other.code, other.errors[0]) == (2, 'error: "service" needs a manifest')


async def test_a_dry_run_writes_nothing_and_of_the_client_asks_nobody(pinnace: Commands) -> None:
    done = await pinnace("create", "deployment", "web", "--image", "app", "--dry-run=server")
    assert done.lines == ["deployment.apps/web created (server dry run)"]
    assert (await pinnace("get", "deployment", "web")).code == 3
    nowhere = ("--server", "127.0.0.1:1", "create", "deployment", "web", "--image", "app", "--dry-run=client", "-o", "yaml")
    manifest = await pinnace(*nowhere)
    assert manifest.code == 0, manifest.err
    assert yaml.safe_load(manifest.out)["metadata"] == {"name": "web", "labels": {"app": "web"}}
    assert (await pinnace("apply", "-f", "-", stdin=manifest.out)).lines == ["deployment.apps/web created"]
    assert (await pinnace("create", "-f", "-", "--dry-run=client", stdin=TWO)).lines == [
        "namespace/space created (client dry run)",
        "pod/a created (client dry run)",
    ]
