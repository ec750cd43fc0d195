"""The wheel, installed into an empty environment, has the page of the timeline."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pinnace.timeline.site import MODULES
from tests.browser.conftest import START_TIMEOUT

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]


def call(*command: str | Path, folder: Path, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=START_TIMEOUT, check=False
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout.strip()


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The folder of the commands. The dependencies are those of this environment, without the sources of this folder."""
    call(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, ROOT, folder=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    venv = tmp_path / "venv"
    call(sys.executable, "-m", "venv", "--without-pip", venv, folder=tmp_path)
    python = venv / "bin" / "python"
    call(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", wheel, folder=tmp_path)
    (packages,) = venv.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    result = call(
        python, "-c", "from pinnace import gateway, timeline; print(gateway.__file__, timeline.__file__)", folder=tmp_path
    )
    assert all(Path(file).is_relative_to(packages) for file in result.split())
    assert {path.name for path in packages.iterdir() if (path / "__init__.py").exists()} == {"pinnace"}
    return venv / "bin"


@pytest.fixture
def link(installed: Path, tmp_path: Path) -> Iterator[str]:
    """A link to the timeline of a gateway that runs from the wheel."""
    environment = os.environ | {"KUBECONFIG": str(tmp_path / "config"), "PINNACE_DATA_DIR": str(tmp_path / "cluster")}
    environment.pop("PYTHONPATH", None)

    def pinnace(*arguments: str) -> str:
        return call(installed / "pinnace", *arguments, folder=tmp_path, environment=environment)

    pinnace(
        "up", "--detach", "--nodes", "1", "--schedulers", "1", "--apiservers", "1", "--controllers", "1", "--timeout", "150s"
    )
    try:
        yield pinnace("ui", "--no-open")
    finally:
        pinnace("down")


def test_page_loads_from_the_wheel(browser: Any, link: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    answers: dict[str, int] = {}
    errors: list[str] = []
    page.on("response", lambda response: answers.update({response.url.partition("?")[0]: response.status}))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("requestfailed", lambda request: errors.append(request.url))
    page.goto(link)
    page.wait_for_selector(".leader.held", timeout=60_000)
    base = link.partition("#")[0]
    assets = {f"{base}static/{name}" for name in ("style.css", *MODULES)}
    assert assets <= answers.keys() and not errors
    assert {url: status for url, status in answers.items() if status >= 400} == {}
    assert all(url.startswith(base) for url in answers), "nothing comes from another host"
    context.close()
