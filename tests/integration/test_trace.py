"""`pinnace trace` on a real cluster: etcd, an API server, a scheduler, a fleet of two nodes."""

import json

from pinnace.client.client import Client
from tests.builders import make_pod
from tests.integration.conftest import Start
from tests.integration.processes import Component
from tests.integration.test_first_story import scheduled, until, until_event
from tests.integration.test_why import run, taint


async def test_trace_from_creation_to_running(apiserver: Component, client: Client, start: Start) -> None:
    await start("kubelet", "fleet", "--server", apiserver.address, "--nodes", "2", "--node-prefix", "node-").ready()
    await taint(client, "node-1")
    await start("scheduler", "scheduler-0", "--server", apiserver.address).ready()
    web = await client.pods.create(make_pod("web").req(cpu="100m").new())
    await client.pods.create(make_pod("whale").req(cpu=64).new())
    await until(client, "web", lambda pod: pod.status.phase == "Running")
    await until(client, "whale", lambda pod: scheduled(pod).startswith("False"))
    await until_event(client, "FailedScheduling")

    result = json.loads((await run(apiserver, "trace", "pod/web", "-o", "json")).stdout)
    steps = {step["what"]: step for step in result["steps"]}
    assert steps["created"]["revision"] == int(web.metadata.resourceVersion)
    assert steps["created"]["revision"] < steps["bound"]["revision"] < steps["Running"]["revision"]
    assert steps["bound"]["by"] == "scheduler-0" and "to node-0, under the fence scheduler/" in steps["bound"]["detail"]
    assert [item["plugin"] for item in result["decision"]["refusals"]] == ["TaintToleration"]
    assert result["decided"] == f"revision {steps['bound']['revision'] - 1}"

    text = (await run(apiserver, "trace", "pod/whale")).stdout
    assert "rejected   scheduler-0" in text and "0 of 2 nodes pass the filters." in text and "Insufficient cpu" in text
    missing = await run(apiserver, "trace", "pod/nobody")
    assert missing.returncode == 3 and 'pods "nobody" not found' in missing.stderr
