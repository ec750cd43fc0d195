"""The configuration of the components of a cluster: files that are copied, and environment variables that are stored.

`read_inputs` reads the configuration once, when the cluster is created:

    --scheduler-config FILE, --scheduler-plugin SPEC,      copied to <data_dir>/config, and passed to the components as
    --stages, --images FILE                                arguments
    PINNACE_SCHEDULER_CONFIG and similar variables         the same, if the flag is not set
    PINNACE_<COMPONENT>_*                                  stored in the state for this component
    GOGC, GOMEMLIMIT, PYTHONPATH, OTEL_* and similar       stored in the state for all components

Later starts use the copies and the stored variables, and ignore such variables of their own environment. Relative paths of
flags and variables begin at the working directory of `up`, those in a configuration file at its folder. The file of a plugin
is copied, and so is a module or package in the working directory. Installed packages, modules on PYTHONPATH, and certificates
are not copied.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from pinnace.api.machines import MachineOptions
from pinnace.cluster.errors import SpecError
from pinnace.cluster.etcd import etcd_environment
from pinnace.cluster.spec import (
    APISERVER,
    CONTROLLERS,
    ELECTION,
    ELECTION_LEASE,
    ETCD,
    GATEWAY,
    KUBELET,
    PROCESS,
    PROXY,
    SCHEDULER,
    STAGES,
    ClusterSpec,
    ComponentInputs,
    ProcessPlan,
    config_folder,
)

PREFIXES = {
    component: f"PINNACE_{component.upper()}_" for component in (APISERVER, SCHEDULER, CONTROLLERS, KUBELET, GATEWAY, PROXY)
}
"""The prefix of variables that are options of a component (pinnace.runtime.flags)."""
FLAGS = {
    "scheduler_config": ("--scheduler-config", "PINNACE_SCHEDULER_CONFIG"),
    "scheduler_plugins": ("--scheduler-plugin", "PINNACE_SCHEDULER_PLUGIN"),
    "stages": ("--stages", "PINNACE_KUBELET_STAGES"),
    "images": ("--images", "PINNACE_KUBELET_IMAGES"),
    "machines": ("--machines", "PINNACE_KUBELET_MACHINES"),
}
"""Options that name files, as in `options_by_name`: the flag of `pinnace up`, and the equivalent variable."""
COPIES = {
    "scheduler_config": ("scheduler.yaml", SCHEDULER),
    "stages": ("stages.yaml", KUBELET),
    "machines": ("machines.yaml", KUBELET),
}
"""Of options that name a file: the name of its copy, and the component that reads the copy when it starts."""
COPIED = {"PINNACE_APISERVER_TOKEN_AUTH_FILE": "tokens.csv"}
"""Other variables that name an input file, with the name of its copy."""
WRITTEN = (
    "PINNACE_APISERVER_AUDIT_LOG_PATH",
    "PINNACE_KUBELET_RUN_LOG",
    "PINNACE_SCHEDULER_RECORD",
    "PINNACE_SCHEDULER_WRITE_CONFIG_TO",
)
"""Variables that name an output file of a component."""
AMBIENT = ("GOGC", "GOMEMLIMIT", "GODEBUG", "GOMAXPROCS", "PYTHONPATH")
AMBIENT_PREFIX = "OTEL_"
"""Variables that all components or their libraries read."""
CONTAINERS = ("PATH", "LANG")
"""Variables that containers of a process runtime inherit from their kubelet."""
OURS = (APISERVER, SCHEDULER, CONTROLLERS, KUBELET, GATEWAY, PROXY, "pinnace")
"""Packages of pinnace, which cannot be plugins."""
CONFIG, PLUGIN, STAGED = "--config", "--plugin", "--stages"
IMAGES = "--images"
CONFIGURING = {
    SCHEDULER: (CONFIG,),
    APISERVER: (ELECTION_LEASE,),
    KUBELET: (STAGED, IMAGES, *(f"--{name.replace('_', '-')}" for name in MachineOptions.__dataclass_fields__)),
}
"""Configuration flags of components with one value."""
_TLS_FILES = ("caFile", "certFile", "keyFile")
LARGEST = 10_000_000
"""Maximum size of a file in bytes."""


def read_inputs(spec: ClusterSpec, environ: Mapping[str, str], cwd: Path) -> ComponentInputs:
    """Read the configuration of the components of this cluster. Raises SpecError for an unreadable file."""
    spec = with_environment(spec, environ)
    copies = _ConfigCopies(config_folder(spec.data_dir), cwd)
    arguments: dict[str, list[str]] = {SCHEDULER: [], APISERVER: [], KUBELET: []}
    if spec.scheduler_config:
        text = copies.scheduler_config(copies.read(spec.scheduler_config, "--scheduler-config"), cwd / spec.scheduler_config)
        arguments[SCHEDULER] += [CONFIG, copies.add("scheduler.yaml", text)]
    for given in spec.scheduler_plugins:
        arguments[SCHEDULER] += [PLUGIN, copies.plugin(given, "--scheduler-plugin")]
    if spec.stages:
        known = spec.stages in STAGES
        text = b"" if known else copies.read(spec.stages, "--stages")
        arguments[KUBELET] += [STAGED, spec.stages if known else copies.add("stages.yaml", text)]
    if spec.images and spec.runtime == PROCESS:
        arguments[KUBELET] += [IMAGES, copies.add("images.yaml", copies.read(spec.images, "--images"))]
    machine = spec.machine
    if machine.machines:
        text = copies.read(machine.machines, "--machines")
        machine = replace(machine, machines=copies.add("machines.yaml", text))
    arguments[KUBELET] += machine.arguments()
    return ComponentInputs(copies.files, arguments, _component_environments(spec, environ, copies), copies.notes)


def with_environment(spec: ClusterSpec, environ: Mapping[str, str]) -> ClusterSpec:
    """The spec, with missing values from the variables in FLAGS."""
    told = options_by_name(spec)
    said: dict[str, Any] = {}
    for name, (_, variable) in FLAGS.items():
        if environ.get(variable) and not told[name]:
            said[name] = tuple(environ[variable].split()) if name == "scheduler_plugins" else environ[variable]
    return with_options(spec, said)


def options_by_name(spec: ClusterSpec) -> dict[str, Any]:
    """All options of `pinnace up`, by name."""
    said = spec.to_fields()
    machine: dict[str, Any] = said.pop("machine")
    return said | machine


def with_options(spec: ClusterSpec, options: Mapping[str, Any]) -> ClusterSpec:
    """The spec with these values of `options_by_name`."""
    machine = {name: value for name, value in options.items() if name in MachineOptions.__dataclass_fields__}
    others = {name: value for name, value in options.items() if name not in machine}
    return replace(spec, **others, machine=replace(spec.machine, **machine))


def with_absolute_paths(spec: ClusterSpec, cwd: Path) -> ClusterSpec:
    """The spec with absolute paths of files, as stored in the state and shown to users."""

    def full(given: str) -> str:
        return str(cwd / given) if given and given not in STAGES else given

    told = options_by_name(spec)
    files = {name: full(told[name]) for name in FLAGS if name != "scheduler_plugins"}
    plugins = tuple(
        full(scheduler_plugin) if ".py:" in scheduler_plugin else scheduler_plugin
        for scheduler_plugin in spec.scheduler_plugins
    )
    return with_options(spec, {**files, "scheduler_plugins": plugins})


def spawn_environment(plan: ProcessPlan, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process: the caller's variables that do not configure a component, and the stored ones."""
    return etcd_environment(
        {name: value for name, value in environ.items() if not _configures_component(name)} | dict(plan.environment)
    )


def component_options(plan: ProcessPlan) -> dict[str, str | list[str]]:
    """The configuration of the process of this plan: arguments from `read_inputs`, and stored variables."""
    said: dict[str, str | list[str]] = {}
    for flag, value in pairwise(plan.argv):
        if flag == PLUGIN and plan.component == SCHEDULER:
            said[flag] = [*said.get(flag, ()), value]
        elif flag in CONFIGURING.get(plan.component, ()):
            said[flag] = value
    return said | {name: value for name, value in plan.environment if _configures_component(name)}


def overruled_variables(plans: Iterable[ProcessPlan], environ: Mapping[str, str]) -> list[str]:
    """Notes on variables without effect, because `pinnace up` sets the flag itself. One sentence each."""
    names = {variable for _, variable in FLAGS.values()}
    result = {}
    for plan in plans:
        for argument in plan.argv if plan.component != ETCD else ():
            variable = PREFIXES[plan.component] + argument.removeprefix("--").replace("-", "_").upper()
            if argument.startswith("--") and variable in environ and variable not in names:
                result[variable] = f"{variable} has no effect: `pinnace up` sets {argument} of the {plan.component} itself"
    return list(result.values())


def file_digests(spec: ClusterSpec, cwd: Path) -> dict[str, str]:
    """A digest of all files of each given option, to compare two starts. Raises SpecError."""
    bare, told, result = ClusterSpec(data_dir=spec.data_dir, runtime=spec.runtime), options_by_name(spec), dict[str, str]()
    for name in FLAGS:
        if told[name]:
            alone = read_inputs(with_options(bare, {name: told[name]}), {}, cwd)
            said = (sorted(alone.files.items()), sorted((key, list(value)) for key, value in alone.arguments.items()))
            result[name] = hashlib.sha256(repr(said).encode()).hexdigest()
    return result


def changed_variables(plans: Sequence[ProcessPlan], environ: Mapping[str, str], cwd: Path) -> dict[str, str | None]:
    """Variables of PREFIXES whose value differs from the value at the start of the cluster, with that value; None: not set.
    Without the variables in FLAGS.
    """
    flags = {variable for _, variable in FLAGS.values()}
    result: dict[str, str | None] = {}
    for component, prefix in PREFIXES.items():
        kept = [dict(plan.environment) for plan in plans if plan.component == component]
        for name, value in environ.items():
            if not kept or not name.startswith(prefix) or name in flags:
                continue
            stored = kept[0].get(name)
            if name in COPIED and stored is not None:
                same = _read(cwd / value) == _read(Path(stored))
            else:
                same = stored == (str(cwd / value) if name in WRITTEN else value)
            if not same:
                result[name] = stored
    return result


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _configures_component(name: str) -> bool:
    return name in AMBIENT or name.startswith((AMBIENT_PREFIX, *PREFIXES.values()))


def _component_environments(
    spec: ClusterSpec, environ: Mapping[str, str], copies: "_ConfigCopies"
) -> dict[str, dict[str, str]]:
    """The stored variables of each component."""
    ambient = {name: value for name, value in environ.items() if name in AMBIENT or name.startswith(AMBIENT_PREFIX)}
    if "PYTHONPATH" in ambient:
        ambient["PYTHONPATH"] = ":".join(str(copies.cwd / part) for part in ambient["PYTHONPATH"].split(":") if part)
    kept = {component: dict(ambient) for component in (ETCD, *PREFIXES)}
    if copies.modules:
        kept[SCHEDULER]["PYTHONPATH"] = ":".join(filter(None, (str(copies.modules), ambient.get("PYTHONPATH", ""))))
    flags = {variable for _, variable in FLAGS.values()}
    for component, prefix in PREFIXES.items():
        for name, value in environ.items():
            if name.startswith(prefix) and name not in flags:
                if name in COPIED:
                    value = copies.add(COPIED[name], copies.read(value, name))
                kept[component][name] = str(copies.cwd / value) if name in WRITTEN else value
    if spec.runtime == PROCESS:
        kept[KUBELET] |= {name: environ[name] for name in CONTAINERS if name in environ}
    return kept


@dataclass(slots=True)
class _ConfigCopies:
    """The files to copy into `folder`. `modules`: the import path of copied modules, if there are any."""

    folder: Path
    cwd: Path
    files: dict[str, bytes] = field(default_factory=dict)
    modules: Path | None = None
    notes: list[str] = field(default_factory=list)
    _plugins: dict[Path, str] = field(default_factory=dict)

    def read(self, given: str, flag: str, folder: Path | None = None) -> bytes:
        """The content of the file; a relative path begins at `folder`, or at the working directory. Raises SpecError."""
        path = (folder or self.cwd) / given
        try:
            if path.stat().st_size > LARGEST:
                raise SpecError(f"{flag}: {path} is larger than {LARGEST:,} bytes", hint="check the path")
            return path.read_bytes()
        except OSError as error:
            raise SpecError(f"{flag}: {path}: {error.strerror}", hint=f"paths are relative to {folder or self.cwd}") from error

    def add(self, name: str, data: bytes) -> str:
        """The absolute path of the copy."""
        self.files[name] = data
        return str(self.folder / name)

    def plugin(self, spec: str, flag: str, folder: Path | None = None) -> str:
        """The argument for the plugin `spec`: module:Class or file.py:Class. Its path begins at `folder`, or at the working
        directory. Raises SpecError."""
        where, colon, class_name = spec.rpartition(":")
        if not colon:
            return spec
        if not where.endswith(".py"):
            self._copy_module(where.partition(".")[0])
            return spec
        path = ((folder or self.cwd) / where).resolve()
        if path not in self._plugins:
            data = self.read(where, f"{flag} {spec}", folder)
            self._plugins[path] = self.add(f"plugins/{len(self._plugins)}/{path.name}", data)
        return f"{self._plugins[path]}:{class_name}"

    def _copy_module(self, root: str) -> None:
        """Copy a top-level module or package of the current directory."""
        if root in OURS or not root.isidentifier():
            return
        file, package = self.cwd / f"{root}.py", self.cwd / root
        result = [file] if file.is_file() else sorted(package.rglob("*.py")) if package.is_dir() else []
        for path in result:
            self.add(f"modules/{path.relative_to(self.cwd)}", self.read(str(path), root))
        if result:
            self.modules = self.folder / "modules"

    def scheduler_config(self, text: bytes, path: Path) -> bytes:
        """With the paths of the copies for those of plugins, full paths for those of certificates, and the election that the
        schedulers of a cluster may hold: others are for schedulers beside them. Raises SpecError."""
        text = _with_paths(text, path.parent)
        try:
            document = yaml.safe_load(text)
        except (yaml.YAMLError, UnicodeDecodeError):
            return text  # the scheduler reports the error
        named = dict.fromkeys(value for key, value in _iterate_strings(document) if key == "name" and ":" in value)
        plugins = {name: self.plugin(name, f"{path}: plugin", path.parent) for name in named}
        text = _replace_values(text, plugins, lambda key: key == "name")
        elections = {
            value: ELECTION for key, value in _iterate_strings(document) if key == "resourceName" and value != ELECTION
        }
        for election in elections:
            self.notes.append(
                f'the schedulers hold the election "{ELECTION}", as in every cluster, and not "{election}" as {path} says: '
                "that is for schedulers beside them"
            )
        return _replace_values(text, elections, lambda key: key == "resourceName", before=r"\bresourceName:\s*[\"']?")


def _with_paths(text: bytes, folder: Path) -> bytes:
    """YAML documents with absolute paths of certificates."""
    try:
        documents = list(yaml.safe_load_all(text))
    except (yaml.YAMLError, UnicodeDecodeError):
        return text
    named = {
        value: str(folder / value) for document in documents for key, value in _iterate_strings(document) if key in _TLS_FILES
    }
    return _replace_values(text, named, lambda key: key in _TLS_FILES)


def _replace_values(text: bytes, values: Mapping[str, str], wanted: Callable[[str], bool], *, before: str = "") -> bytes:
    """YAML documents with new values at the keys in `wanted`. Comments are kept if possible. `before`: a regular expression for
    the text before such a value.
    """
    values = {old: new for old, new in values.items() if old != new}
    if not values:
        return text
    expected = [_map_strings(item, values, wanted) for item in yaml.safe_load_all(text)]
    pattern = "|".join(re.escape(old) for old in sorted(values, key=len, reverse=True))
    made = re.sub(rf"({before})(?<![\w./-])({pattern})(?!\w)", lambda found: found[1] + values[found[2]], text.decode())
    try:
        if list(yaml.safe_load_all(made)) == expected:
            return made.encode()
    except yaml.YAMLError:
        pass
    return yaml.safe_dump_all(expected, sort_keys=False).encode()


def _iterate_strings(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """All strings of a document, with their keys."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _iterate_strings(each, str(name))
    elif isinstance(value, list):
        for item in value:
            yield from _iterate_strings(item, key)
    elif isinstance(value, str):
        yield key, value


def _map_strings(value: Any, values: Mapping[str, str], wanted: Callable[[str], bool], key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _map_strings(each, values, wanted, str(name)) for name, each in value.items()}
    if isinstance(value, list):
        return [_map_strings(item, values, wanted, key) for item in value]
    return values.get(value, value) if isinstance(value, str) and wanted(key) else value
