"""A browser, and a cluster whose timeline it opens. Screenshots are kept in $PINNACE_SCREENSHOTS, if it is set."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

START_TIMEOUT = 180.0
TIMEOUT = 60.0
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

Pinnace = Callable[..., str]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def pinnace(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> Iterator[Pinnace]:
    """Runs the command line against a cluster of its own, and returns what it prints."""
    folder = tmp_path_factory.mktemp("browser")
    environment = os.environ | {"KUBECONFIG": str(folder / "config"), "PINNACE_DATA_DIR": str(folder / "cluster")}

    def run(*arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            [str(Path(sys.executable).with_name("pinnace")), *arguments],
            input=stdin, env=environment, capture_output=True, text=True, timeout=START_TIMEOUT, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"pinnace {' '.join(arguments)}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()

    run("up", "--detach", "--timeout", "150s")
    try:
        yield run
    finally:
        run("down")


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page. The test fails if a script of it does."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    made = context.new_page()
    made.set_default_timeout(TIMEOUT * 1000)
    errors: list[str] = []
    made.on("pageerror", lambda error: errors.append(str(error)))
    yield made
    context.close()
    assert not errors


@pytest.fixture
def timeline(page: Any, pinnace: Pinnace) -> Any:
    """The page of the live timeline, connected."""
    page.goto(pinnace("ui", "--no-open"))
    page.wait_for_selector(".status.live")
    page.wait_for_selector(".leader.held")
    return page


def screenshot(page: Any, name: str) -> None:
    if folder := os.environ.get("PINNACE_SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(Path(folder) / f"{name}.png"))
