"""The guide's table of what a plugin can read is complete."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from pinnace.scheduler.cache.cache import Cache
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.framework import Handle, NodeTable, NodeView
from pinnace.study.trace import Generated
from tests.builders import make_pod

ROOT = Path(__file__).parents[3]
WRITERS = {
    *("add_node", "update_node", "remove_node", "add_requests", "remove_requests", "begin_generation", "mark_dirty"),
    *("dirty", "by_priority", "subtract_amounts", "add_amounts", "subtract_reserved", "raw"),
}
"""What the cache and preemption use, and plugins do not."""


def attributes_of(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def described(section: str) -> set[str]:
    """Return the words in code spans of the section of the guide."""
    text = (ROOT / "docs" / "studies.md").read_text()
    part = text[text.index(section) :]
    part = part[: part.index("\n## ", 1)]
    return {word for span in re.findall(r"`([^`]+)`", part) for word in re.findall(r"[a-z_]+", span)}


@pytest.mark.parametrize(
    "thing",
    [NodeView(NodeTable(), 0), Cache().nodes, PodInfo(make_pod("p").build()), Handle],
    ids=["node", "nodes", "pod", "handle"],
)
def test_all_that_a_plugin_can_read_is_in_the_guide(thing: object) -> None:
    names = attributes_of(type(thing) if isinstance(thing, NodeView) else thing)
    assert len(names) > 4
    assert names - WRITERS - described("## What a plugin can read") == set()


def test_all_parameters_of_the_generator_are_in_the_guide() -> None:
    assert {item.name for item in fields(Generated)} - described("### Generated traces") == set()
