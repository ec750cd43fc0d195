"""Runs the console blocks of the labs: `make labs`. README.md describes the format."""

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from sybil import Document, Sybil

from tests.labs.console import ConsoleParser, Runner, Shell, environment

LONGEST = 300
"""Seconds for one block, with all its repetitions."""


class LabDocument(Document):
    def __init__(self, text: str, path: str) -> None:
        super().__init__(text, path)
        self.namespace["path"] = Path(path)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="Write the outputs of the labs' commands into the labs.")


def pytest_configure(config: pytest.Config) -> None:
    global update
    update = config.getoption("--update", False)


update = False


def set_up(namespace: dict[str, Any]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="pinnace-lab-"))
    work = folder / "work"
    work.mkdir()
    namespace["folder"] = folder
    namespace["runner"] = Runner(Shell(work, environment(folder)), work, update=update)


def tear_down(namespace: dict[str, Any]) -> None:
    runner, folder = namespace["runner"], namespace["folder"]
    runner.shell.close()
    subprocess.run(["pinnace", "down"], env=environment(folder), capture_output=True, timeout=60, check=False)
    if runner.changes and not runner.failed:
        runner.rewrite(namespace["path"])
    shutil.rmtree(folder, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker("labs")
            item.add_marker(pytest.mark.timeout(LONGEST))


pytest_collect_file = Sybil(
    [ConsoleParser()], pattern="[0-9][0-9]-*.md", setup=set_up, teardown=tear_down, document_types={".md": LabDocument}
).pytest()
