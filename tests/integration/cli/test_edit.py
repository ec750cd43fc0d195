"""`edit`, with programs for editors: what is saved is stored, or it is said what is wrong; nothing that was written is lost."""

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from pinnace.api.merge import LAST_APPLIED
from tests.integration.cli.commands import Commands, Done, command

POD = """
apiVersion: v1
kind: Pod
metadata: {name: a}
spec: {containers: [{name: main, image: "app:1"}]}
"""
Editor = Callable[[str], str]


@pytest.fixture
async def pinnace(pinnace: Commands) -> Commands:
    assert (await pinnace("apply", "-f", "-", stdin=POD)).code == 0
    return pinnace


@pytest.fixture
def editor(tmp_path: Path) -> Editor:
    """Makes an editor of lines of shell, in which $1 is the file; it keeps what it was shown last in "shown"."""

    def made(script: str) -> str:
        path = tmp_path / "editor"
        path.write_text(f'#!/bin/sh\nset -e\ncp "$1" {tmp_path}/shown\n{script}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return made


async def edit(pinnace: Commands, editor: str, tmp_path: Path, what: str = "pod/a") -> Done:
    with_editor = Commands(pinnace.servers, pinnace.forkserver, {"KUBE_EDITOR": editor, "TMPDIR": str(tmp_path)})
    return await with_editor("edit", what)


def kept(tmp_path: Path) -> list[str]:
    return [path.read_text() for path in tmp_path.glob("pinnace-edit-*")]


async def image(pinnace: Commands) -> str:
    return (await pinnace("get", "pod", "a", "-o", "jsonpath={.spec.containers[0].image}")).out.strip()


async def test_saved_edit_is_stored(pinnace: Commands, editor: Editor, tmp_path: Path) -> None:
    done = await edit(pinnace, editor('sed -i s/app:1/app:2/ "$1"'), tmp_path)
    assert (done.code, done.out, done.err) == (0, "pod/a edited\n", "")
    assert (await image(pinnace), kept(tmp_path)) == ("app:2", [])
    shown = (tmp_path / "shown").read_text()
    assert shown.startswith("# Change what")
    assert not any(own in shown for own in ("status:", "uid:", "resourceVersion:", LAST_APPLIED)), "what people do not write"
    assert LAST_APPLIED in (await pinnace("get", "pod", "a", "-o", "yaml")).out, "and it is kept"


@pytest.mark.parametrize("script", ["", ': > "$1"', 'echo "# well" >> "$1"'])
async def test_unchanged_edit_writes_nothing(pinnace: Commands, editor: Editor, tmp_path: Path, script: str) -> None:
    done = await edit(pinnace, editor(script), tmp_path)
    assert (done.code, done.out, done.err) == (0, "", "note: pod/a: nothing was changed\n")
    assert kept(tmp_path) == []


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ("s/image:/imago:/", 'unknown field; did you mean "image"?'),
        ("s/name: a/name: b/", 'metadata.name: may not be changed (it is "a")'),
        ("s/restartPolicy: .*/restartPolicy: Never/", "spec: Forbidden: "),
    ],
)
async def test_rejected_edit_is_reopened_with_the_reasons(
    pinnace: Commands, editor: Editor, tmp_path: Path, wrong: str, complaint: str
) -> None:
    mended = (
        f'if [ -e {tmp_path}/again ]; then cp {tmp_path}/right "$1"; else cp "$1" {tmp_path}/right; sed -i "{wrong}" "$1"; fi'
    )
    done = await edit(pinnace, editor(f"{mended}; touch {tmp_path}/again; sed -i s/app:1/app:2/ {tmp_path}/right"), tmp_path)
    assert (done.code, done.out) == (0, "pod/a edited\n"), done.err
    assert complaint in (tmp_path / "shown").read_text()
    assert await image(pinnace) == "app:2"


async def test_repeatedly_rejected_edit_is_kept_in_a_file(pinnace: Commands, editor: Editor, tmp_path: Path) -> None:
    done = await edit(pinnace, editor('sed -i s/image:/imago:/ "$1"'), tmp_path)
    assert done.code == 5
    (text,) = kept(tmp_path)
    assert "imago: app:1" in text
    assert f"what you wrote is in {tmp_path}/pinnace-edit-" in done.errors[-1]


async def test_concurrent_changes_are_merged_and_overlaps_conflict(pinnace: Commands, editor: Editor, tmp_path: Path) -> None:
    patch = " ".join(command("--server", ",".join(pinnace.servers), "patch", "pod", "a"))
    beside = f"""{patch} -p '{{"metadata": {{"labels": {{"by": "another"}}}}}}' >&2"""
    done = await edit(pinnace, editor(f'{beside}; sed -i s/app:1/app:2/ "$1"'), tmp_path)
    assert (done.code, done.out) == (0, "pod/a edited\n"), done.err
    assert (await pinnace("get", "pods", "-l", "by=another", "-o", "name")).lines == ["pod/a"]
    assert await image(pinnace) == "app:2"
    beside = f"""{patch} -p '{{"spec": {{"containers": [{{"name": "main", "image": "theirs"}}]}}}}' >&2"""
    done = await edit(pinnace, editor(f'{beside}; sed -i s/app:2/app:3/ "$1"'), tmp_path)
    assert (done.code, done.out) == (4, "")
    assert await image(pinnace) == "theirs"
    assert "image: app:3" in kept(tmp_path)[0]


async def test_an_editor_that_fails_is_no_change(pinnace: Commands, editor: Editor, tmp_path: Path) -> None:
    for script in ("exit 3", "/no/such/editor"):
        done = await edit(pinnace, editor(script), tmp_path)
        assert (done.code, done.out, kept(tmp_path)) == (2, "", [])
    assert (await edit(pinnace, "true", tmp_path, what="pods")).code == 2


async def test_invalid_edit_is_kept_in_a_file(pinnace: Commands, editor: Editor, tmp_path: Path) -> None:
    for script in ('echo "x: y" >> "$1"; exit 3', r"""printf 'x: "\344"' >> "$1" """):
        done = await edit(pinnace, editor(script), tmp_path)
        assert done.code == 2
        path = done.errors[-1].rpartition(" ")[2]
        assert path.startswith(f"{tmp_path}/pinnace-edit-")
