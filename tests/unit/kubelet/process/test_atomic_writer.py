"""Updates of a volume are seen completely or not at all, and never leave it."""

import os
from pathlib import Path

import pytest

from pinnace.kubelet.runtime.process.atomic_writer import ProjectedFile, write_atomically


def files(**contents: str) -> dict[str, ProjectedFile]:
    return {name.replace("__", "/"): ProjectedFile(text.encode(), 0o640) for name, text in contents.items()}


def shown(volume: Path) -> dict[str, str]:
    """What a container sees, by path."""
    return {
        str(Path(here, name).relative_to(volume)): Path(here, name).read_text()
        for here, _, names in os.walk(volume, followlinks=True)
        for name in names
        if not Path(here).relative_to(volume).parts or not Path(here).relative_to(volume).parts[0].startswith("..")
    }


def test_update_replaces_adds_and_removes_files(tmp_path: Path) -> None:
    assert write_atomically(tmp_path, files(a="1", b="1", dir__c="1"))
    with (tmp_path / "a").open() as opened:
        before = (tmp_path / "..data").readlink()
        assert write_atomically(tmp_path, files(a="2", dir__c="1", dir__d="2"))
        assert opened.read() == "1", "an open file keeps its content"
    assert shown(tmp_path) == {"a": "2", "dir/c": "1", "dir/d": "2"}
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640
    assert not (tmp_path / before).exists()


def test_equal_content_changes_nothing(tmp_path: Path) -> None:
    write_atomically(tmp_path, files(a="1"))
    before = (tmp_path / "..data").readlink()
    assert not write_atomically(tmp_path, files(a="1"))
    assert (tmp_path / "..data").readlink() == before
    assert write_atomically(tmp_path, {"a": ProjectedFile(b"1", 0o600)}), "another mode"


@pytest.mark.parametrize("path", ["../a", "a/../../b", "/a", "", "..data", "..", "a//b", "a\0", "x" * 300])
def test_paths_out_of_the_volume_are_refused(tmp_path: Path, path: str) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    with pytest.raises(ValueError, match="invalid path"):
        write_atomically(volume, {path: ProjectedFile(b"", 0o644)})
    assert list(volume.iterdir()) == [] and list(tmp_path.iterdir()) == [volume]


def test_links_of_the_container_are_not_followed(tmp_path: Path) -> None:
    """A container can replace the links of its volume."""
    volume, victim = tmp_path / "volume", tmp_path / "victim"
    volume.mkdir()
    victim.mkdir()
    (victim / "kept").write_text("kept")
    write_atomically(volume, files(a="1"))
    (volume / "..data").unlink()
    (volume / "..data").symlink_to("../victim")
    (volume / "..data_tmp").symlink_to("../victim/kept")
    write_atomically(volume, files(a="2"))
    assert (volume / "a").read_text() == "2"
    assert [path.name for path in victim.iterdir()] == ["kept"] and (victim / "kept").read_text() == "kept"
