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


async def test_create_warns_once_about_fields_without_effect(pinnace: Commands) -> None:
    spec = "{containers: [{name: c, image: i, resources: {requests: {memory: 1m}}}]}"
    odd = f"{{apiVersion: v1, kind: Pod, metadata: {{name: %s}}, spec: {spec}}}"
    done = await pinnace("create", "-f", "-", stdin=f"{odd % 'x'}\n---\n{odd % 'w'}")
    assert (done.code, done.lines) == (0, ["pod/x created", "pod/w created"])
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


async def test_dry_run_writes_nothing_and_client_dry_run_contacts_no_server(pinnace: Commands) -> None:
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


async def test_run_creates_a_pod_of_one_container(pinnace: Commands) -> None:
    flags = ("--port", "80", "--env", "A=b", "--labels", "app=web", "--restart", "Never")
    assert (await pinnace("run", "web", "--image", "nginx:1", *flags, "--", "-v")).lines == ["pod/web created"]
    pod = yaml.safe_load((await pinnace("get", "pod", "web", "-o", "yaml")).out)
    (container,) = pod["spec"]["containers"]
    assert (container["name"], container["image"], container["args"]) == ("web", "nginx:1", ["-v"])
    assert container["env"] == [{"name": "A", "value": "b"}] and container["ports"][0]["containerPort"] == 80
    assert (pod["metadata"]["labels"], pod["spec"]["restartPolicy"]) == ({"app": "web"}, "Never")
    done = await pinnace("run", "x", "--image", "i", "--command")
    assert done.code == 2 and "no command is given" in done.err


async def test_expose_creates_a_service_for_the_pods(pinnace: Commands) -> None:
    assert (await pinnace("create", "deployment", "web", "--image", "nginx:1")).code == 0
    done = await pinnace("expose", "deployment/web", "--port", "80", "--target-port", "http")
    assert done.lines == ["service/web created"], done.err
    spec = yaml.safe_load((await pinnace("get", "service", "web", "-o", "yaml")).out)["spec"]
    assert spec["selector"] == {"app": "web"}
    assert [(each["port"], each["targetPort"], each["protocol"]) for each in spec["ports"]] == [(80, "http", "TCP")]
    none = await pinnace("expose", "deployment/web", "--name", "other")
    assert none.code == 2 and "say --port PORT" in none.err
    assert (await pinnace("expose", "job/web", "--port", "80")).code == 2


async def test_set_image_changes_the_containers_that_are_named(pinnace: Commands) -> None:
    assert (await pinnace("create", "deployment", "web", "--image", "nginx:1", "--image", "log:1")).code == 0
    assert (await pinnace("set", "image", "deployment/web", "nginx=nginx:2")).lines == ["deployment.apps/web image updated"]
    images = "-o=jsonpath={.spec.template.spec.containers[*].image}"
    assert (await pinnace("get", "deployment", "web", images)).out == "nginx:2 log:1"
    assert (await pinnace("set", "image", "deployment/web", "*=both:3")).code == 0
    assert (await pinnace("get", "deployment", "web", images)).out == "both:3 both:3"
    missing = await pinnace("set", "image", "deployment/web", "db=x")
    assert missing.code == 3 and 'unable to find container named "db"' in missing.err
