"""What a shell is offered where objects are named."""

from pathlib import Path

from pinnace.client.client import Client
from pinnace.client.config import ClientConfig
from pinnace.client.contexts import write_context
from tests.builders import make_node, make_pod
from tests.integration.cli.commands import Commands
from tests.integration.cli.forkserver import ForkServer


async def offered(pinnace: Commands, words: str) -> list[str]:
    """`words`: after "pinnace"; the last one is being typed."""
    pinnace.environment = {
        **pinnace.environment,
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
        "get pods -n kube-s": ["kube-system"],
        "get pods --namespace def": ["default"],
        "get pods -o js": ["json", "jsonpath="],
        "wait --for c": ["condition=Ready", "condition=Available", "condition=Complete", "create"],
        "taint no": ["nodes"],
        "taint node ": ["n"],
        "auth can-i del": ["delete", "deletecollection"],
        "auth can-i delete dep": ["deployments"],
        "top ": ["nodes", "pods"],
        "top pod web": ["web-1", "web-2"],
        "why ": ["pods"],
        "why pod/db --node ": ["n"],
        "create ": ["configmap", "deployment", "job", "namespace", "secret", "serviceaccount"],
    }
    assert {words: await offered(pinnace, words) for words in expected} == expected


async def test_configuration_values_are_completed(pinnace: Commands, tmp_path: Path) -> None:
    file, data_dir = tmp_path / "config", tmp_path / "cluster"
    write_context("remote", ClientConfig(("far.example:1",)), file=file)
    write_context("local", ClientConfig(tuple(pinnace.servers), data_dir=data_dir), file=file)
    (data_dir / "logs").mkdir(parents=True)
    (data_dir / "logs" / "scheduler-0.log").touch()
    pinnace.environment = {"KUBECONFIG": str(file)}
    expected = {
        "get pods --context ": ["local", "remote"],
        "logs comp": ["component/scheduler-0"],
        "logs component/": ["component/scheduler-0"],
    }
    assert {words: sorted(await offered(pinnace, words)) for words in expected} == expected


async def test_without_a_server_there_is_silence(forkserver: ForkServer) -> None:
    nowhere = Commands(["127.0.0.1:1"], forkserver)
    assert await offered(nowhere, "get pod w") == []
    assert await offered(nowhere, "get nod") == ["nodes"]
