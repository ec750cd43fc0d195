"""`pinnace wait`, end to end."""

import asyncio

from pinnace.client.client import Client
from tests.builders import make_node, make_pod
from tests.integration.cli.commands import Commands

PHASE = "--for=jsonpath={.status.phase}=Running"


async def test_what_is_so_already_and_what_becomes_so(pinnace: Commands, client: Client) -> None:
    for name in "ab":
        await client.pods.create(make_pod(name).req(cpu="1").label("app", "web").new())
    assert (await pinnace("wait", "--for=jsonpath={.status.phase}=Pending", "pods", "--all")).lines == [
        "pod/a condition met",
        "pod/b condition met",
    ]
    async with pinnace.start("wait", PHASE, "pods", "-l", "app=web") as waiting:
        for name in "ba":
            pod = await client.pods.get(name, "default")
            pod.status.phase = "Running"
            await client.pods.update_status(pod)
        assert sorted([await waiting.line(), await waiting.line()]) == ["pod/a condition met", "pod/b condition met"]
        assert (await waiting.end()).code == 0


async def test_what_comes_and_what_goes(pinnace: Commands, client: Client) -> None:
    async with pinnace.start("wait", "--for=create", "nodes", "n1", "n2") as waiting:
        for name in ("n1", "n2"):
            await client.nodes.create(make_node(name).new())
        done = await waiting.end()
    assert (done.code, sorted(done.lines)) == (0, ["node/n1 condition met", "node/n2 condition met"])
    async with pinnace.start("wait", "--for=create", "--for=delete", "node", "n1", "n2") as waiting:
        for _ in range(2):
            await waiting.line()  # so it looks
        for name in ("n1", "n2"):
            await client.nodes.delete(name)
        assert (await waiting.end()).code == 0
    assert (await pinnace("wait", "--for=delete", "node", "never-there")).code == 0


async def test_all_that_is_waited_for_must_come(pinnace: Commands, client: Client) -> None:
    both = ("--for=condition=Ready=Unknown", "--for=create", "--for=jsonpath={.spec.unschedulable}=true")
    async with pinnace.start("wait", *both, "node/n") as waiting:
        await client.nodes.create(make_node("n").new())
        assert await waiting.line() == "node/n condition met"  # it is there
        node = await client.nodes.get("n")
        del node.status.conditions[:]
        node.status.conditions.add(type="Ready", status="Unknown")
        node = await client.nodes.update_status(node)
        assert await waiting.line() == "node/n condition met"
        node.spec.unschedulable = True
        await client.nodes.update(node)
        done = await waiting.end()
        assert (done.code, done.lines) == (0, ["node/n condition met"])


async def test_ends_that_are_not_good(pinnace: Commands, client: Client) -> None:
    await client.nodes.create(make_node("n").new())
    late, missing, none = await asyncio.gather(
        pinnace("wait", "--for=condition=Never", "node/n", "--timeout", "1s"),
        pinnace("wait", "--for=condition=Ready=Unknown", "node/nope", "--timeout", "5s"),
        pinnace("wait", "--for=condition=Ready", "pods", "--all", "--timeout", "5s"),
    )
    assert late.code == 6 and "waiting for the condition on node/n" in late.errors[0]
    assert missing.code == 3 and missing.errors[0] == 'error: nodes "nope" not found'
    assert none.code == 3 and none.errors[0] == "error: no matching pods found"


async def test_wait_goes_on_with_a_namesake(pinnace: Commands, client: Client) -> None:
    """As kubectl: an object that is deleted and created again is waited for, with all conditions anew."""
    await client.nodes.create(make_node("n").new())
    async with pinnace.start("wait", "--for=create", "--for=jsonpath={.spec.unschedulable}=true", "node/n") as waiting:
        assert await waiting.line() == "node/n condition met"  # so it looks
        await client.nodes.delete("n")
        again = make_node("n").new()
        again.spec.unschedulable = True
        await client.nodes.create(again)
        done = await waiting.end()
        assert (done.code, done.lines) == (0, ["node/n condition met"])


async def test_a_look_without_waiting(pinnace: Commands, client: Client) -> None:
    """As in Kubernetes: 0 is a look, and less a week."""
    await client.nodes.create(make_node("n").new())
    done = await pinnace("wait", "--for=condition=Never", "node/n", "--timeout=0")
    assert (done.code, done.errors[0]) == (6, "error: timed out waiting for the condition on node/n")
    assert (await pinnace("wait", "--for=create", "node/n", "--timeout=0s")).lines == ["node/n condition met"]
    done = await pinnace("wait", "--for=delete", "node/n", "--timeout", "0")
    assert (done.code, done.errors[0]) == (6, "error: timed out waiting for the deletion of node/n")
    done = await pinnace("wait", "--for=create", "node/m", "--timeout=0")
    assert (done.code, done.errors[0]) == (6, "error: timed out waiting for node/m to be created")
    assert (await pinnace("wait", "--for=create", "node/n", "--timeout=-1s")).code == 0
