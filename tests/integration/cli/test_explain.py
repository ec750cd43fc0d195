"""`explain`, as it is typed; no server is asked."""

import pytest

from tests.integration.cli.commands import Commands
from tests.integration.cli.forkserver import ForkServer


@pytest.fixture
def pinnace(forkserver: ForkServer) -> Commands:
    return Commands(["127.0.0.1:1"], forkserver)


async def test_a_field_is_explained_without_a_server(pinnace: Commands) -> None:
    done = await pinnace("explain", "pod.spec.containers[0].resources")
    assert (done.code, done.err) == (0, "")
    assert done.lines[:4] == ["KIND:       Pod", "VERSION:    v1", "", "FIELD: resources <ResourceRequirements>"]
    assert "  requests\t<map[string]Quantity>" in done.lines
    tree = await pinnace("explain", "deploy", "--recursive")
    assert "      spec\t<PodSpec> -required-" in tree.lines


async def test_what_is_not_there(pinnace: Commands) -> None:
    done = await pinnace("explain", "pod.spec.contianers")
    assert (done.code, done.out) == (2, "")
    assert done.errors == [
        'error: Pod.spec has no field "contianers"; did you mean "containers"?',
        "hint: `pinnace explain pod.spec` shows its fields",
    ]
    assert (await pinnace("explain")).code == 2
    assert (await pinnace("explain", "podz")).errors[0] == 'error: unknown resource "podz"; did you mean "pod"?'


async def test_paths_are_completed(pinnace: Commands) -> None:
    pinnace.environment = {
        "_PINNACE_COMPLETE": "bash_complete",
        "COMP_WORDS": "pinnace explain pod.spec.toler",
        "COMP_CWORD": "2",
    }
    done = await pinnace()
    assert "pod.spec.tolerations" in done.out
