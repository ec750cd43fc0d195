"""The inputs of a cluster are kept: configuration files are copied, and environment variables are stored."""

import importlib
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from pinnace.api.machines import MachineOptions
from pinnace.cluster import inputs
from pinnace.cluster.errors import SpecError
from pinnace.cluster.etcd import EtcdBinary
from pinnace.cluster.inputs import (
    PREFIXES,
    changed_variables,
    component_options,
    file_digests,
    overruled_variables,
    read_inputs,
    spawn_environment,
)
from pinnace.cluster.spec import FAKE, PROCESS, ClusterSpec, ComponentInputs, ProcessPlan, plan_processes
from pinnace.scheduler.config import parse_configuration

BINARY = EtcdBinary(Path("/bin/etcd"), (3, 5, 21), fallback=False)
PLUGIN = """
class Cheap:
    name = "Cheap"

    def score(self, pod, node):
        return 1
"""
CONFIG = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {resourceName: cheap}
profiles:
- schedulerName: cheap  # a comment
  plugins:
    score: {enabled: [{name: "plugins/cheap.py:Cheap", weight: 5}]}
  pluginConfig:
  - name: plugins/cheap.py:Cheap
    args: {}
"""


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    """The folder in which `pinnace up` is called."""
    folder = tmp_path / "cwd"
    (folder / "plugins").mkdir(parents=True)
    (folder / "plugins" / "cheap.py").write_text(PLUGIN)
    (folder / "policy.yaml").write_text(CONFIG)
    return folder


@pytest.fixture
def spec(tmp_path: Path) -> ClusterSpec:
    return ClusterSpec(data_dir=tmp_path / "data", controllers=1)


def plans(spec: ClusterSpec, gathered: ComponentInputs) -> dict[str, ProcessPlan]:
    ports = count(20_000)
    return {item.name: item for item in plan_processes(spec, BINARY, lambda: next(ports), inputs=gathered)}


def written(spec: ClusterSpec, gathered: ComponentInputs) -> None:
    for name, data in gathered.files.items():
        path = spec.data_dir / "config" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


@pytest.mark.parametrize("by", ["flag", "variable"])
def test_scheduler_configuration_and_its_plugins_are_copied(cwd: Path, spec: ClusterSpec, by: str) -> None:
    """Regression: paths of plugins were resolved in the folder of the logs, and a restart brought the default policy back."""
    environ = {"PINNACE_SCHEDULER_CONFIG": "policy.yaml"} if by == "variable" else {}
    given = replace(spec, scheduler_config="policy.yaml") if by == "flag" else spec
    gathered = read_inputs(given, environ, cwd)
    written(spec, gathered)
    (cwd / "policy.yaml").unlink()
    (cwd / "plugins" / "cheap.py").unlink()

    argv = plans(spec, gathered)["scheduler-1"].argv
    copy = Path(argv[argv.index("--config") + 1])
    assert copy == spec.data_dir / "config" / "scheduler.yaml"
    result = parse_configuration(copy.read_text())
    (profile,) = result.profiles
    assert result.election == "scheduler", "the role of the schedulers allows no other election"
    assert gathered.notes and '"cheap"' in gathered.notes[0]
    assert profile.weights["Cheap"] == 5
    assert "# a comment" in copy.read_text() and str(spec.data_dir / "config/plugins/0/cheap.py:Cheap") in copy.read_text()


def test_paths_in_a_scheduler_configuration_begin_at_its_folder(cwd: Path, spec: ClusterSpec) -> None:
    (cwd / "plugins" / "policy.yaml").write_text(
        CONFIG.replace("plugins/cheap.py", "cheap.py")
        + "extenders: [{urlPrefix: 'https://h:1', filterVerb: f, tlsConfig: {caFile: ca.crt}}]\n"
    )
    gathered = read_inputs(replace(spec, scheduler_config="plugins/policy.yaml"), {}, cwd)
    assert gathered.files["plugins/0/cheap.py"] == PLUGIN.encode()
    copied = yaml.safe_load(gathered.files["scheduler.yaml"])
    assert copied["extenders"][0]["tlsConfig"]["caFile"] == str(cwd / "plugins" / "ca.crt")


def test_plugins_of_the_command_line_are_copied(cwd: Path, spec: ClusterSpec) -> None:
    (cwd / "mine.py").write_text(PLUGIN)
    (cwd / "pack").mkdir()
    (cwd / "pack" / "deep.py").write_text(PLUGIN)
    given = replace(
        spec, scheduler_plugins=("plugins/cheap.py:Cheap", "mine:Cheap", "pack.deep:Cheap", "pinnace.scheduler.plugins:X")
    )
    gathered = read_inputs(given, {"PYTHONPATH": "lib:/usr/lib/x"}, cwd)
    assert set(gathered.files) == {"plugins/0/cheap.py", "modules/mine.py", "modules/pack/deep.py"}
    scheduler = plans(spec, gathered)["scheduler-0"]
    copied = f"{spec.data_dir}/config"
    assert component_options(scheduler) == {
        "--plugin": [f"{copied}/plugins/0/cheap.py:Cheap", "mine:Cheap", "pack.deep:Cheap", "pinnace.scheduler.plugins:X"],
        "PYTHONPATH": f"{copied}/modules:{cwd}/lib:/usr/lib/x",
    }
    assert component_options(plans(spec, gathered)["apiserver-0"]) == {"PYTHONPATH": f"{cwd}/lib:/usr/lib/x"}


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("scheduler_config", "nope.yaml", "--scheduler-config: {cwd}/nope.yaml: No such file"),
        ("scheduler_plugins", ("nope.py:X",), "--scheduler-plugin nope.py:X: {cwd}/nope.py: No such file"),
        ("stages", "nope.yaml", "--stages: {cwd}/nope.yaml: No such file"),
    ],
)
def test_missing_input_file_is_named(cwd: Path, spec: ClusterSpec, field: str, value: Any, said: str) -> None:
    with pytest.raises(SpecError) as refused:
        read_inputs(replace(spec, **{field: value}), {}, cwd)
    assert refused.value.message.startswith(said.format(cwd=cwd)) and str(cwd) in refused.value.hint


def test_missing_plugin_of_a_configuration_is_named_with_the_configuration(cwd: Path, spec: ClusterSpec) -> None:
    (cwd / "plugins" / "cheap.py").unlink()
    with pytest.raises(SpecError, match=r"policy.yaml: plugin plugins/cheap.py:Cheap: .*/cwd/plugins/cheap.py: No such file"):
        read_inputs(replace(spec, scheduler_config="policy.yaml"), {}, cwd)


def test_variables_of_the_first_start_apply_at_every_start(cwd: Path, spec: ClusterSpec) -> None:
    environ = {"PINNACE_SCHEDULER_SEED": "7", "PINNACE_KUBELET_CPU": "8", "GOGC": "50", "OTEL_X": "1", "HOME": "/h"}
    result = plans(spec, read_inputs(spec, environ, cwd))
    assert component_options(result["scheduler-0"]) == {"PINNACE_SCHEDULER_SEED": "7", "GOGC": "50", "OTEL_X": "1"}
    assert component_options(result["kubelet-0"])["PINNACE_KUBELET_CPU"] == "8"
    later = {"PINNACE_SCHEDULER_SEED": "8", "PINNACE_SCHEDULER_CONFIG": "x", "GOGC": "9", "PATH": "/bin"}
    assert spawn_environment(result["scheduler-0"], later) == {
        "PINNACE_SCHEDULER_SEED": "7", "GOGC": "50", "OTEL_X": "1", "PATH": "/bin", "GOMEMLIMIT": "1GiB",
    }  # fmt: skip
    assert "PINNACE_SCHEDULER_SEED" not in spawn_environment(result["controllers-0"], later)


def test_token_file_is_copied_and_audit_log_path_is_made_absolute(cwd: Path, spec: ClusterSpec) -> None:
    (cwd / "tokens").write_text("t,u,1")
    environ = {"PINNACE_APISERVER_TOKEN_AUTH_FILE": "tokens", "PINNACE_APISERVER_AUDIT_LOG_PATH": "audit.log"}
    gathered = read_inputs(spec, environ, cwd)
    assert component_options(plans(spec, gathered)["apiserver-0"]) == {
        "PINNACE_APISERVER_TOKEN_AUTH_FILE": str(spec.data_dir / "config" / "tokens.csv"),
        "PINNACE_APISERVER_AUDIT_LOG_PATH": str(cwd / "audit.log"),
    }
    assert gathered.files["tokens.csv"] == b"t,u,1"


def test_machines_file_is_copied(cwd: Path, spec: ClusterSpec) -> None:
    (cwd / "machines.yaml").write_text("- {cpu: 2}")
    gathered = read_inputs(replace(spec, machine=MachineOptions(cpu="8", machines="machines.yaml")), {}, cwd)
    copy = str(spec.data_dir / "config" / "machines.yaml")
    assert component_options(plans(spec, gathered)["kubelet-0"]) == {"--cpu": "8", "--machines": copy}
    assert gathered.files["machines.yaml"] == b"- {cpu: 2}"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"PINNACE_SCHEDULER_SEED": "7", "GOGC": "1"}, {}),
        ({}, {}),
        ({"PINNACE_SCHEDULER_SEED": "8"}, {"PINNACE_SCHEDULER_SEED": "7"}),
        ({"PINNACE_CONTROLLERS_NODE_EVICTION_RATE": "1"}, {"PINNACE_CONTROLLERS_NODE_EVICTION_RATE": None}),
        ({"PINNACE_APISERVER_AUDIT_LOG_PATH": "a"}, {}),
    ],
)
def test_changed_variables_are_found(
    cwd: Path, spec: ClusterSpec, environ: Mapping[str, str], expected: Mapping[str, str | None]
) -> None:
    before = {"PINNACE_SCHEDULER_SEED": "7", "PINNACE_APISERVER_AUDIT_LOG_PATH": str(cwd / "a")}
    assert changed_variables(list(plans(spec, read_inputs(spec, before, cwd)).values()), environ, cwd) == expected


def test_files_are_compared_by_content(cwd: Path, spec: ClusterSpec) -> None:
    given = replace(spec, scheduler_config="policy.yaml", stages="fast")
    before = file_digests(given, cwd)
    (cwd / "other.yaml").write_text(CONFIG)
    assert file_digests(replace(given, scheduler_config="other.yaml"), cwd) == before
    (cwd / "plugins" / "cheap.py").write_text(PLUGIN + "\n")
    assert file_digests(given, cwd)["scheduler_config"] != before["scheduler_config"], (
        "a plugin of the configuration has changed"
    )
    assert file_digests(given, cwd)["stages"] == before["stages"] != file_digests(replace(given, stages="chaos"), cwd)["stages"]


def test_images_are_copied_for_the_process_runtime(cwd: Path, spec: ClusterSpec) -> None:
    (cwd / "images.yaml").write_text("images: {a: {command: [x]}}")
    given = replace(spec, images="images.yaml", runtime=PROCESS)
    copied = read_inputs(given, {}, cwd)
    assert list(copied.arguments["kubelet"][:1]) == ["--images"]
    assert copied.files["images.yaml"] == b"images: {a: {command: [x]}}"
    assert file_digests(given, cwd)["images"] == file_digests(replace(given, images=str(cwd / "images.yaml")), cwd)["images"]
    assert "--images" not in read_inputs(replace(given, runtime=FAKE), {}, cwd).arguments["kubelet"]


def test_variable_overridden_by_up_is_reported(cwd: Path, spec: ClusterSpec) -> None:
    environ = {"PINNACE_KUBELET_NODES": "5", "PINNACE_SCHEDULER_SEED": "1", "PINNACE_SCHEDULER_CONFIG": "policy.yaml"}
    result = plans(spec, read_inputs(spec, environ, cwd)).values()
    assert overruled_variables(result, environ) == [
        "PINNACE_KUBELET_NODES has no effect: `pinnace up` sets --nodes of the kubelet itself"
    ]


def test_every_file_option_of_a_component_is_handled(cwd: Path, spec: ClusterSpec) -> None:
    """A relative path would be resolved in the folder of the logs, and a file that is not copied may change or vanish."""
    by_up = {argument for item in plans(replace(spec, gateways=1), ComponentInputs()).values() for argument in item.argv}
    known = {variable for _, variable in inputs.FLAGS.values()} | set(inputs.COPIED) | set(inputs.WRITTEN)
    for component, prefix in PREFIXES.items():
        command = importlib.import_module(f"pinnace.{component}.main").main
        for param in command.params:
            if isinstance(param.type, click.Path) and by_up.isdisjoint(param.opts):
                assert param.envvar in known, param.opts
                assert str(param.envvar).startswith(prefix)
