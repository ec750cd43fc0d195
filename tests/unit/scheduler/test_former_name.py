import logging
import sys
from pathlib import Path

import pytest

from pinnace.scheduler.framework import PerNodeScore, former_name, profile
from pinnace.scheduler.framework.profile import load_plugin_class

PLUGIN = """
from scheduler.framework import PerNodeScore


class Cheapest(PerNodeScore):
    name = "Cheapest"
"""


@pytest.fixture(autouse=True)
def imports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for name in [name for name in sys.modules if name.split(".")[0] == former_name.FORMER]:
        del sys.modules[name]


def test_plugin_can_import_the_former_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "cheapest.py").write_text(PLUGIN)
    with caplog.at_level(logging.WARNING):
        plugin = load_plugin_class(f"{tmp_path}/cheapest.py:Cheapest")
    assert issubclass(plugin, PerNodeScore)
    assert 'import "pinnace.scheduler" instead' in caplog.text
    assert profile.__spec__ is not None and profile.__spec__.name == "pinnace.scheduler.framework.profile"


def test_former_name_belongs_to_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scheduler").mkdir()
    (tmp_path / "scheduler" / "__init__.py").write_text("MINE = True\n")
    (tmp_path / "mine.py").write_text("from scheduler import MINE\nclass Plugin:\n    name = 'Mine'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load_plugin_class(f"{tmp_path}/mine.py:Plugin").name == "Mine"
