"""Trees that are hard to remove."""

import os
import subprocess
from pathlib import Path

import pytest

from pinnace.runtime.files import remove_tree
from tests.unprivileged import read_only, unprivileged

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("mode", [0o755, 0o555, 0o000])
def test_what_its_owner_has_made_read_only_goes(mode: int) -> None:
    with unprivileged() as folder:
        top = folder / "top"
        top.mkdir()
        read_only(top)
        top.chmod(mode)
        remove_tree(top)
        assert list(folder.iterdir()) == []


def test_a_tree_of_any_depth_goes(tmp_path: Path) -> None:
    """Deeper than Python calls functions, and its path longer than the system takes."""
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
        subprocess.run(["rm", "-rf", top], check=True)  # pytest could not


def test_what_links_name_stays(tmp_path: Path) -> None:
    """In the tree, and where its top was."""
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


def test_what_cannot_be_removed_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="top"):
        remove_tree(tmp_path / "top")
