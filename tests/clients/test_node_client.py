"""@kubernetes/client-node, by a story in JavaScript: creation, patch, informer, exec refused, deletion."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.clients.conftest import Npm

pytestmark = pytest.mark.clients
PACKAGE = "@kubernetes/client-node@2"
RUN_TIMEOUT = 100.0
STORY = Path(__file__).with_name("story.mjs")


@pytest.fixture(scope="module")
def modules(npm: Npm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where the package is installed."""
    folder = tmp_path_factory.mktemp("node")
    npm(folder, "install", "--no-audit", "--no-fund", PACKAGE)
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
