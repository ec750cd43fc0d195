"""Selecting, changing, renaming and removing contexts. The rest of the file is preserved."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from pinnace.client.config import (
    ClientConfig,
    ConfigError,
    current,
    current_context,
    delete_context,
    load,
    minified,
    read,
    remove_context,
    rename_context,
    set_context,
    use_context,
    write_context,
)

THEIRS: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [
        {"name": "far", "cluster": {"server": "far:1"}, "note": "theirs"},
        {"name": "near", "cluster": {"server": "n:1"}},
    ],
    "contexts": [
        {"name": "far", "context": {"cluster": "far", "user": "me", "namespace": "work", "extensions": []}},
        {"name": "near", "context": {"cluster": "near", "user": "me"}},
    ],
    "users": [{"name": "me", "user": {"token": "secret"}}],
    "current-context": "far",
    "preferences": {"colors": True},
}
LOCAL = ClientConfig(("127.0.0.1:1",), data_dir=Path("/data"))


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "config").write_text(yaml.safe_dump(THEIRS))
    return {"PINNACE_CONFIG": str(tmp_path / "config")}


def document(environ: dict[str, str]) -> dict[str, Any]:
    return read(Path(environ["PINNACE_CONFIG"]))


def test_use_context_changes_only_the_current_context(environ: dict[str, str]) -> None:
    use_context("near", environ=environ)
    assert document(environ) == {**THEIRS, "current-context": "near"}
    with pytest.raises(ConfigError, match=r'config: no context "gone" \(known: far, near\)'):
        use_context("gone", environ=environ)
    assert current_context(environ=environ) == "near"


def test_set_context_keeps_position_and_other_fields(environ: dict[str, str]) -> None:
    assert not set_context("far", {"namespace": "play"}, environ=environ)
    changed = {"name": "far", "context": {"cluster": "far", "user": "me", "namespace": "play", "extensions": []}}
    assert document(environ) == {**THEIRS, "contexts": [changed, THEIRS["contexts"][1]]}


def test_new_context_needs_an_existing_cluster(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="needs a cluster") as caught:
        set_context("mine", {"namespace": "play"}, environ=environ)
    assert "far, near" in caught.value.hint
    for changes in ({"cluster": "gone"}, {"cluster": "far", "user": "gone"}):
        with pytest.raises(ConfigError, match='"gone"'):
            set_context("mine", changes, environ=environ)
    assert document(environ) == THEIRS
    assert set_context("mine", {"cluster": "near", "namespace": "play"}, environ=environ)
    assert load(context="mine", environ=environ).namespace == "play"


def test_rename_context_updates_the_current_context(environ: dict[str, str]) -> None:
    rename_context("far", "away", environ=environ)
    assert current_context(environ=environ) == "away"
    assert document(environ)["contexts"][0] == {**THEIRS["contexts"][0], "name": "away"}
    with pytest.raises(ConfigError, match='context "near" already exists'):
        rename_context("away", "near", environ=environ)


def test_delete_context_keeps_cluster_and_user(environ: dict[str, str]) -> None:
    assert not delete_context("near", environ=environ)
    assert delete_context("far", environ=environ)
    assert document(environ) == {**THEIRS, "contexts": [], "current-context": ""}
    with pytest.raises(ConfigError, match="current-context is not set"):
        current(document(environ), Path("config"))


def test_minified_contains_only_the_context(environ: dict[str, str]) -> None:
    least = minified(document(environ), "near", Path("config"))
    assert [each["name"] for kind in ("clusters", "users", "contexts") for each in least[kind]] == ["near", "me", "near"]
    assert least["current-context"] == "near" and least["preferences"] == {"colors": True}


def test_removing_a_local_cluster_removes_all_its_contexts(environ: dict[str, str]) -> None:
    write_context("local", LOCAL, environ=environ)
    rename_context("local", "home", environ=environ)
    set_context("team", {"cluster": "local", "namespace": "team"}, environ=environ)
    assert load(environ=environ) == LOCAL
    remove_context("local", environ=environ)
    assert document(environ) == {**THEIRS, "current-context": ""}


def test_rewritten_context_keeps_its_namespace(environ: dict[str, str]) -> None:
    write_context("local", LOCAL, environ=environ)
    set_context("local", {"namespace": "team"}, environ=environ)
    write_context("local", ClientConfig(("127.0.0.1:2",)), environ=environ)
    assert load(environ=environ) == ClientConfig(("127.0.0.1:2",), "team")


def test_missing_file_is_not_created(tmp_path: Path) -> None:
    environ = {"PINNACE_CONFIG": str(tmp_path / "none")}
    for attempt in (use_context, delete_context):
        with pytest.raises(ConfigError, match="does not exist"):
            attempt("local", environ=environ)
    assert not list(tmp_path.iterdir())


def test_symbolic_link_is_preserved(environ: dict[str, str], tmp_path: Path) -> None:
    """The file may be part of a repository of dotfiles."""
    real, link = tmp_path / "dotfiles" / "config", tmp_path / "link"
    real.parent.mkdir()
    real.write_bytes(Path(environ["PINNACE_CONFIG"]).read_bytes())
    link.symlink_to(real)
    use_context("near", environ={"PINNACE_CONFIG": str(link)})
    assert link.is_symlink() and current_context(environ={"PINNACE_CONFIG": str(real)}) == "near"
