"""`diff`: what `apply` would change, what it is silent about, and how it ends."""

import asyncio
import os
from pathlib import Path

from tests.integration.cli.commands import PATIENCE, Commands, command

EXAMPLES = Path(__file__).parents[3] / "examples"
POD = """
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  containers: [{name: main, image: "app:1"}]
"""


async def test_diff_shows_a_new_object_as_added(pinnace: Commands) -> None:
    done = await pinnace("diff", "-f", "-", stdin=POD)
    assert (done.code, done.err) == (1, "")
    assert done.lines[:3] == ["--- pod/a (live)", "+++ pod/a (applied)", f"@@ -0,0 +1,{len(done.lines) - 3} @@"]
    assert all(line.startswith("+") for line in done.lines[3:])
    assert "+  schedulerName: default-scheduler" in done.lines, "with the server's defaults"
    assert not any(own in done.out for own in ("uid", "creationTimestamp", "last-applied", "status"))
    assert (await pinnace("get", "pod", "a")).code == 3, "nothing is written"


async def test_applied_manifest_has_no_difference(pinnace: Commands) -> None:
    assert (await pinnace("apply", "-f", str(EXAMPLES))).code == 0
    done = await pinnace("diff", "-f", str(EXAMPLES))
    assert (done.code, done.out, done.err) == (0, "", "")


async def test_diff_shows_changes_and_keeps_fields_of_others(pinnace: Commands) -> None:
    await pinnace("apply", "-f", "-", stdin=POD)
    await pinnace("label", "pod", "a", "by=hand")
    assert (await pinnace("diff", "-f", "-", stdin=POD)).code == 0, "apply leaves alone what others have set"
    done = await pinnace("diff", "-f", "-", stdin=POD.replace("app:1", "app:2"))
    assert done.code == 1
    assert [line for line in done.lines[2:] if line[0] in "+-"] == ["-  - image: app:1", "+  - image: app:2"]


async def test_diff_exits_with_two_or_more_on_errors(pinnace: Commands) -> None:
    """Beside objects that differ, too."""
    assert (await pinnace("diff")).code == 2
    assert (await pinnace("diff", "-f", "/nowhere")).code == 2
    done = await pinnace("diff", "-f", "-", stdin=POD.replace("image", "imago"))
    assert (done.code, done.out) == (5, "")
    done = await pinnace("diff", "-f", "-", stdin=POD + "---" + POD.replace("name: a", "name: b, namespace: none"))
    assert (done.code, done.lines[0]) == (3, "--- pod/a (live)")
    assert done.err.startswith("stdin:8: Error from server (NamespaceNotFound)")


async def test_a_reader_that_leaves_is_no_error(pinnace: Commands) -> None:
    script = " ".join(command("diff", "-f", str(EXAMPLES))) + " | true; echo ${PIPESTATUS[0]} >&2"
    environment = {**os.environ, "KUBECONFIG": os.devnull + "/nothing", "PINNACE_SERVER": ",".join(pinnace.servers)}
    shell = await asyncio.create_subprocess_exec("bash", "-c", script, stdout=-1, stderr=-1, env=environment)
    _, err = await asyncio.wait_for(shell.communicate(), PATIENCE)
    assert err == b"141\n"
