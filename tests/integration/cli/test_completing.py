"""What a shell is offered where objects are named."""

from pinnace.client.client import Client
from tests.builders import make_node, make_pod
from tests.integration.cli.commands import Commands
from tests.integration.cli.forkserver import ForkServer


async def offered(pinnace: Commands, words: str) -> list[str]:
    """`words`: after "pinnace"; the last one is being typed."""
    pinnace.environment = {
        "_PINNACE_COMPLETE": "bash_complete",
        "COMP_WORDS": f"pinnace {words}",
        "COMP_CWORD": str(words.count(" ") + 1),
    }
    done = await pinnace()
    assert (done.code, done.err) == (0, "")
    return [line.partition(",")[2] for line in done.lines if line]


async def test_names_are_completed(pinnace: Commands, client: Client) -> None:
    await client.nodes.create(make_node("n").new())
    for name in ("web-1", "web-2", "db"):
        await client.pods.create(make_pod(name).req(cpu="1").new())
    await client.pods.create(make_pod("dns", "kube-system").req(cpu="1").new())
    expected = {
        "get po": ["pods", "poddisruptionbudgets"],
        "get nodes,name": ["nodes,namespaces"],
        "get pod web": ["web-1", "web-2"],
        "delete pod web-1 web": ["web-2"],
        "describe pod/d": ["pod/db"],
        "get pod -n kube-system ": ["dns"],
        "cordon ": ["n"],
        "drain node/": ["node/n"],
        "logs d": ["db"],
        "pod crash w": ["web-1", "web-2"],
        "label nodes ": ["n"],
        "why pod/d": ["pod/db"],
        "get podz ": [],
    }
    assert {words: await offered(pinnace, words) for words in expected} == expected


async def test_without_a_server_there_is_silence(forkserver: ForkServer) -> None:
    nowhere = Commands(["127.0.0.1:1"], forkserver)
    assert await offered(nowhere, "get pod w") == []
    assert await offered(nowhere, "get nod") == ["nodes"]
