"""The pytest plugin. Until a test uses a fixture, it imports pytest and nothing else (docs/testing-operators.md).

With pytest-xdist, each worker has a cluster of its own, which its first test with a fixture starts. With `pinnace_shared`, the
first worker that needs one starts a cluster for all, and the controller ends it.
"""

import os
import re
import shutil
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pinnace.testing.handle import PinnaceCluster
    from pinnace.testing.sessions import ClusterOptions, ClusterSession

READ_AT_IMPORT = tuple(
    f"{name}.config{module}" for name in ("kubernetes", "kubernetes_asyncio") for module in ("", ".kube_config")
)
"""Modules that read KUBECONFIG once, when they are imported. With the import at the head of a test file, a client would use the
user's own cluster."""
LOG_LINES = 40
"""The last lines of each log that a report has."""
MAX_WORDS = 50
"""The characters of a test's name in that of its namespace."""
SHARED = "pinnace_shared_folder"
"""The key of the folder of a shared cluster in the input of a worker."""
KEPT = "pinnace_kept"
"""The key of the kept clusters in the output of a worker."""
_session: "pytest.StashKey[ClusterSession]" = pytest.StashKey()
_sizes: pytest.StashKey[dict[str, int]] = pytest.StashKey()
_kept: pytest.StashKey[list[str]] = pytest.StashKey()
_shared_folder: pytest.StashKey[Path] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("pinnace", "a cluster for the tests of operators")
    group.addoption("--pinnace-nodes", type=int, help="Number of virtual nodes (ini: pinnace_nodes; default: 1).")
    group.addoption(
        "--pinnace-runtime", choices=("fake", "process"),
        help="Run containers as simulated ones, or as processes of this machine (ini: pinnace_runtime; default: fake).",
    )  # fmt: skip
    group.addoption(
        "--pinnace-data-dir",
        type=Path,
        metavar="DIR",
        help="The folder for clusters (ini: pinnace_data_dir; default: on tmpfs).",
    )
    group.addoption(
        "--pinnace-manifests", action="append", type=Path, metavar="PATH",
        help="A YAML file, or a folder of them, such as CRDs, that is applied when the cluster is ready. May be repeated. "
        "(ini: pinnace_manifests)",
    )  # fmt: skip
    group.addoption(
        "--pinnace-shared", action="store_true", default=None, help="Share one cluster between the workers of pytest-xdist."
    )
    group.addoption(
        "--pinnace-keep-on-failure", action="store_true", default=None,
        help="Let the cluster run on after a failed test (ini: pinnace_keep_on_failure).",
    )  # fmt: skip
    group.addoption("--pinnace-timeout", type=float, help="Seconds for the start (ini: pinnace_timeout; default: 60).")
    parser.addini("pinnace_nodes", "Number of virtual nodes", default="1")
    parser.addini("pinnace_runtime", "fake or process", default="fake")
    parser.addini("pinnace_data_dir", "The folder for clusters", default="")
    parser.addini("pinnace_manifests", "YAML files and folders that are applied when the cluster is ready", type="paths")
    parser.addini("pinnace_shared", "Share one cluster between the workers of pytest-xdist", type="bool", default=False)
    parser.addini("pinnace_keep_on_failure", "Let the cluster run on after a failed test", type="bool", default=False)
    parser.addini("pinnace_timeout", "Seconds for the start", default="60")


def _read_option(config: pytest.Config, name: str) -> Any:
    """The value of the command line, or of the configuration file."""
    value = config.getoption(name)
    return config.getini(name) if value is None else value


def read_options(config: pytest.Config) -> "ClusterOptions":
    """Return the options of the cluster. Raises pytest.UsageError."""
    from pinnace.testing.sessions import ClusterOptions

    base = _read_option(config, "pinnace_data_dir")
    try:
        nodes, timeout = int(_read_option(config, "pinnace_nodes")), float(_read_option(config, "pinnace_timeout"))
    except ValueError as error:
        raise pytest.UsageError(f"pinnace_nodes and pinnace_timeout are numbers: {error}") from None
    if nodes < 1:
        raise pytest.UsageError(f"pinnace_nodes is {nodes}: a cluster has 1 node or more")
    runtime = _read_option(config, "pinnace_runtime")
    if runtime not in ("fake", "process"):
        raise pytest.UsageError(f'pinnace_runtime is "{runtime}": use fake or process')
    return ClusterOptions(nodes, runtime, (config.rootpath / base).resolve() if base else None, timeout)


@pytest.fixture(scope="session")
def pinnace_cluster(request: pytest.FixtureRequest) -> "Iterator[PinnaceCluster]":
    """A cluster for the session: one API server, scheduler, controller manager, gateway and kubelet, on a real etcd."""
    from pinnace.testing.sessions import ClusterFailed

    config, failure = request.config, ""
    try:
        session, is_owner = _open_session(config)
    except ClusterFailed as error:
        failure = str(error)
    if failure:  # outside of `except`: a report would show the failure twice
        pytest.fail(failure, pytrace=False)
    config.stash[_session] = session
    config.stash[_sizes] = _log_sizes(session)
    yield session.cluster
    if is_owner:
        _end_session(config, session, failed=bool(request.session.testsfailed))


@pytest.fixture(scope="session")
def kubeconfig(pinnace_cluster: "PinnaceCluster") -> Iterator[Path]:
    """The kubeconfig of the cluster. KUBECONFIG names it during the session: no client reaches the user's own cluster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(pinnace_cluster.kubeconfig))
        for name in READ_AT_IMPORT:
            if hasattr(sys.modules.get(name), "KUBE_CONFIG_DEFAULT_LOCATION"):
                patch.setattr(sys.modules[name], "KUBE_CONFIG_DEFAULT_LOCATION", str(pinnace_cluster.kubeconfig))
        yield pinnace_cluster.kubeconfig


@pytest.fixture
def namespace(pinnace_cluster: "PinnaceCluster", kubeconfig: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own. Its deletion is requested after the test, and not awaited: a finalizer of an operator that
    has ended would block it forever."""
    name = namespace_name(request.node.name, os.urandom(3).hex())
    pinnace_cluster.create_namespace(name)
    yield name
    from pinnace.testing.handle import KubernetesError

    try:
        pinnace_cluster.request("DELETE", f"/api/v1/namespaces/{name}")
    except KubernetesError as error:
        if error.code != 404:  # the test has deleted it
            raise


@pytest.fixture(scope="session")
def kubernetes_client(kubeconfig: Path) -> Iterator[Any]:
    """An ApiClient of the package kubernetes: `kubernetes.client.CoreV1Api(kubernetes_client)`."""
    try:
        from kubernetes.config import new_client_from_config
    except ModuleNotFoundError as error:
        if error.name != "kubernetes":
            raise
        pytest.fail("the fixture kubernetes_client needs the package kubernetes: pip install kubernetes", pytrace=False)
    with new_client_from_config(config_file=str(kubeconfig)) as client:
        yield client


def namespace_name(test: str, suffix: str) -> str:
    """Return the name of a test's namespace: a DNS label that begins with the name of the test."""
    words = re.sub(r"[^a-z0-9]+", "-", test.lower()).strip("-")[:MAX_WORDS].rstrip("-")
    return f"{words or 'test'}-{suffix}"


def _open_session(config: pytest.Config) -> "tuple[ClusterSession, bool]":
    """Return the session, and whether this process ends it. Raises ClusterFailed."""
    from pinnace.testing import sessions

    options = read_options(config)
    shared = getattr(config, "workerinput", {}).get(SHARED)
    if shared is None:
        session = sessions.start_session(options, sessions.new_folder(options.base), os.getpid())
        _prepare_cluster(config, session)
        return session, True
    return sessions.join_session(options, Path(shared), os.getppid(), lambda session: _prepare_cluster(config, session)), False


def _end_session(config: pytest.Config, session: "ClusterSession", *, failed: bool) -> None:
    if not failed or not _read_option(config, "pinnace_keep_on_failure"):
        session.stop()
        return
    session.keep()
    cluster = session.cluster
    text = f"KUBECONFIG={cluster.kubeconfig}    (ends with: pinnace down --data-dir {cluster.data_dir})"
    if hasattr(config, "workeroutput"):
        config.workeroutput.setdefault(KEPT, []).append(text)
    else:
        config.stash.setdefault(_kept, []).append(text)


def _prepare_cluster(config: pytest.Config, session: "ClusterSession") -> None:
    from pinnace.testing.handle import KubernetesError
    from pinnace.testing.sessions import ClusterFailed

    paths = [config.invocation_params.dir / path for path in config.getoption("pinnace_manifests") or ()]
    paths += config.getini("pinnace_manifests")
    try:
        session.cluster.wait_for_account("default")
        session.cluster.apply(*paths)
    except (KubernetesError, OSError, ValueError) as error:
        session.stop()
        raise ClusterFailed(f"the cluster cannot be prepared: {error}") from None


# --- reports


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: "pytest.CallInfo[None]"
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what the components have logged since the test began."""
    report = yield
    stash = item.config.stash
    if _session in stash:
        if report.failed:
            report.sections += list_log_sections(stash[_session].cluster.logs, stash[_sizes])
        if report.when == "teardown":
            stash[_sizes] = _log_sizes(stash[_session])
    return report


def list_log_sections(logs: Path, sizes: dict[str, int]) -> list[tuple[str, str]]:
    """Return a title and the last new lines of each log that has grown. `sizes`: the earlier sizes in bytes, by file name."""
    sections = []
    for path in sorted(logs.glob("*.log")):
        with path.open("rb") as file:
            file.seek(sizes.get(path.name, 0))
            lines = file.read().decode(errors="replace").splitlines()
        if lines:
            omitted = [f"... ({len(lines) - LOG_LINES} more lines)"] if len(lines) > LOG_LINES else []
            sections.append((f"log of {path.stem}", "\n".join([*omitted, *lines[-LOG_LINES:]])))
    return sections


def _log_sizes(session: "ClusterSession") -> dict[str, int]:
    return {path.name: path.stat().st_size for path in session.cluster.logs.glob("*.log")}


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if kept := config.stash.get(_kept, []):
        terminalreporter.section("clusters that run on")
        for line in kept:
            terminalreporter.line(line)


# --- pytest-xdist


class _XdistController:
    """Hooks of the process that controls workers."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        from pinnace.testing import sessions

        config = node.config
        if _read_option(config, "pinnace_shared"):
            if _shared_folder not in config.stash:
                config.stash[_shared_folder] = sessions.new_folder(read_options(config).base)
            node.workerinput[SHARED] = str(config.stash[_shared_folder])

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        node.config.stash.setdefault(_kept, []).extend(getattr(node, "workeroutput", {}).get(KEPT, []))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """The workers have ended."""
        from pinnace.testing import sessions

        config = session.config
        if _shared_folder in config.stash:
            folder = config.stash[_shared_folder]
            if (shared := sessions.find_shared(folder)) is not None:
                _end_session(config, shared, failed=bool(session.testsfailed))
            elif folder.exists():  # no test has used it
                shutil.rmtree(folder)


def pytest_configure(config: pytest.Config) -> None:
    if config.pluginmanager.hasplugin("xdist") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_XdistController(), "pinnace-xdist")
