"""Names, reports and options of the pytest plugin."""

import subprocess
import sys
from pathlib import Path

import pytest

from pinnace.testing.plugin import LOG_LINES, list_log_sections, namespace_name

LISTING = """
import sys

def pytest_collection_finish(session):
    print("modules", *sorted(name for name in sys.modules if name.split(".")[0] in ("pinnace", "grpc", "google", "ssl")))
"""


@pytest.mark.parametrize(
    ("test", "name"),
    [
        ("test_scales_down", "test-scales-down-1a2b"),
        ("test_sizes[0.5-Größe]", "test-sizes-0-5-gr-e-1a2b"),
        ("test_" + "x" * 80, "test-" + "x" * 45 + "-1a2b"),
        ("ü", "test-1a2b"),
    ],
)
def test_namespace_name_is_dns_label_of_test(test: str, name: str) -> None:
    assert namespace_name(test, "1a2b") == name


def test_log_sections_have_only_new_lines(tmp_path: Path) -> None:
    old, new = tmp_path / "a-0.log", tmp_path / "b-0.log"
    old.write_text("before\n")
    new.write_text("before\n")
    sizes = {path.name: path.stat().st_size for path in (old, new)}
    new.write_text("before\nafter\n")
    (tmp_path / "c-0.log").write_text("first\n")
    assert list_log_sections(tmp_path, sizes) == [("log of b-0", "after"), ("log of c-0", "first")]


def test_long_log_section_names_number_of_omitted_lines(tmp_path: Path) -> None:
    (tmp_path / "a-0.log").write_text("".join(f"{number}\n" for number in range(LOG_LINES + 2)))
    ((_, text),) = list_log_sections(tmp_path, {})
    assert text.splitlines()[:2] == ["... (2 more lines)", "2"]


@pytest.mark.processes
def test_pytest_imports_only_plugin_until_fixture_is_used(tmp_path: Path) -> None:
    """A pytest run without a cluster must not become slower by this plugin."""
    (tmp_path / "conftest.py").write_text(LISTING)
    (tmp_path / "test_user.py").write_text("def test_user(namespace): pass\n")
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:asyncio", "-p", "no:hypothesispytest", "--collect-only"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("modules")]
    assert [name for name in line.split()[1:] if name.startswith("pinnace")] == [
        "pinnace", "pinnace.testing", "pinnace.testing.plugin",
    ]  # fmt: skip
    assert "grpc" not in line
