"""Choosing, changing, renaming and removing contexts; all else in the file stays as it is."""

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


def test_another_context_is_chosen(environ: dict[str, str]) -> None:
    use_context("near", environ=environ)
    assert document(environ) == {**THEIRS, "current-context": "near"}
    with pytest.raises(ConfigError, match=r'config: no context "gone" \(known: far, near\)'):
        use_context("gone", environ=environ)
    assert current_context(environ=environ) == "near"


def test_a_context_keeps_its_place_and_what_is_not_said(environ: dict[str, str]) -> None:
    assert not set_context("far", {"namespace": "play"}, environ=environ)
    changed = {"name": "far", "context": {"cluster": "far", "user": "me", "namespace": "play", "extensions": []}}
    assert document(environ) == {**THEIRS, "contexts": [changed, THEIRS["contexts"][1]]}


def test_a_new_context_needs_a_cluster_that_is_there(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="needs a cluster") as caught:
        set_context("mine", {"namespace": "play"}, environ=environ)
    assert "far, near" in caught.value.hint
    for changes in ({"cluster": "gone"}, {"cluster": "far", "user": "gone"}):
        with pytest.raises(ConfigError, match='"gone"'):
            set_context("mine", changes, environ=environ)
    assert document(environ) == THEIRS
    assert set_context("mine", {"cluster": "near", "namespace": "play"}, environ=environ)
    assert load(context="mine", environ=environ).namespace == "play"


def test_a_context_has_another_name(environ: dict[str, str]) -> None:
    rename_context("far", "away", environ=environ)
    assert current_context(environ=environ) == "away"
    assert document(environ)["contexts"][0] == {**THEIRS["contexts"][0], "name": "away"}
    with pytest.raises(ConfigError, match='context "near" already exists'):
        rename_context("away", "near", environ=environ)


def test_a_context_goes_and_its_cluster_and_user_stay(environ: dict[str, str]) -> None:
    assert not delete_context("near", environ=environ)
    assert delete_context("far", environ=environ)
    assert document(environ) == {**THEIRS, "contexts": [], "current-context": ""}
    with pytest.raises(ConfigError, match="current-context is not set"):
        current(document(environ), Path("config"))


def test_what_one_context_needs(environ: dict[str, str]) -> None:
    least = minified(document(environ), "near", Path("config"))
    assert [each["name"] for kind in ("clusters", "users", "contexts") for each in least[kind]] == ["near", "me", "near"]
    assert least["current-context"] == "near" and least["preferences"] == {"colors": True}


def test_a_local_cluster_goes_with_all_its_contexts_whatever_they_are_called(environ: dict[str, str]) -> None:
    write_context("local", LOCAL, environ=environ)
    rename_context("local", "home", environ=environ)
    set_context("team", {"cluster": "local", "namespace": "team"}, environ=environ)
    assert load(environ=environ) == LOCAL
    remove_context("local", environ=environ)
    assert document(environ) == {**THEIRS, "current-context": ""}


def test_a_cluster_that_is_started_again_keeps_its_namespace(environ: dict[str, str]) -> None:
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


def test_a_link_stays_a_link(environ: dict[str, str], tmp_path: Path) -> None:
    """Whoever keeps it in a repository of dotfiles finds it there."""
    real, link = tmp_path / "dotfiles" / "config", tmp_path / "link"
    real.parent.mkdir()
    real.write_bytes(Path(environ["PINNACE_CONFIG"]).read_bytes())
    link.symlink_to(real)
    use_context("near", environ={"PINNACE_CONFIG": str(link)})
    assert link.is_symlink() and current_context(environ={"PINNACE_CONFIG": str(real)}) == "near"
