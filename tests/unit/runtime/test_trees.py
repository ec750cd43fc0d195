"""Removal of directory trees that are difficult to remove."""

import os
import subprocess
from pathlib import Path

import pytest

from pinnace.runtime.files import remove_tree
from tests.unprivileged import read_only, unprivileged

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("mode", [0o755, 0o555, 0o000])
def test_read_only_tree_is_removed(mode: int) -> None:
    with unprivileged() as folder:
        top = folder / "top"
        top.mkdir()
        read_only(top)
        top.chmod(mode)
        remove_tree(top)
        assert list(folder.iterdir()) == []


def test_deep_tree_is_removed(tmp_path: Path) -> None:
    """The depth exceeds Python's recursion limit, and the path exceeds the limit of the system."""
    top = tmp_path / "top"
    top.mkdir()
    descriptor = os.open(top, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("ab", dir_fd=descriptor)
        below = os.open("ab", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    try:
        remove_tree(top)
        assert not top.exists()
    finally:
        subprocess.run(["rm", "-rf", top], check=True)  # pytest cannot remove a tree this deep


def test_targets_of_links_are_kept(tmp_path: Path) -> None:
    """This holds for links in the tree and for a link as its root."""
    kept, top, link = tmp_path / "kept", tmp_path / "top", tmp_path / "link"
    kept.mkdir(mode=0o755)
    (kept / "file").touch()
    (top / "below").mkdir(parents=True)
    for place in (top / "link", top / "below" / "link", link):
        place.symlink_to(kept)
    (top / "dangling").symlink_to("nowhere")
    remove_tree(top)
    remove_tree(link)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert [path.name for path in kept.iterdir()] == ["file"]
    assert kept.stat().st_mode & 0o777 == 0o755


def test_failed_removal_names_the_path(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="top"):
        remove_tree(tmp_path / "top")
