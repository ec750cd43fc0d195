"""The configuration file: KubeSchedulerConfiguration v1, those fields of it that have a meaning here.

    apiVersion: kubescheduler.config.k8s.io/v1
    kind: KubeSchedulerConfiguration
    leaderElection: {resourceName: scheduler}
    podInitialBackoffSeconds: 1
    podMaxBackoffSeconds: 10
    profiles:
    - schedulerName: default-scheduler
      plugins:
        multiPoint: {enabled: [{name: "my_plugins:GreenFirst", weight: 5}]}
        filter: {disabled: [{name: NodePorts}]}
        score: {enabled: [{name: NodeResourcesFit, weight: 3}], disabled: [{name: "*"}]}

The built-in plugins are enabled to begin with. Within a set, `disabled` goes before `enabled`; `multiPoint` goes before
`filter` and `score`, which are about those points alone. A plugin of one's own is named module:Class or path/file.py:Class.
Any other field is refused by name: a setting that does nothing would be a lie.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from scheduler.framework.loader import PluginLoadError, load
from scheduler.framework.runtime import Enabled, Framework
from scheduler.plugins import DEFAULTS

API_VERSION = "kubescheduler.config.k8s.io/v1"
KIND = "KubeSchedulerConfiguration"
POINTS = ("multiPoint", "filter", "score")


class ConfigurationError(Exception):
    """The configuration cannot be used; the message says where and why."""


def default_plugins() -> list[Enabled]:
    """The built-in plugins, with their usual weights."""
    return [Enabled(make(), weight) for make, weight in DEFAULTS.values()]


@dataclass(frozen=True, slots=True)
class Configuration:
    scheduler_name: str = "default-scheduler"
    election: str = "scheduler"
    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    plugins: Sequence[Enabled] = field(default_factory=default_plugins)
    seed: int = 0
    """Of the choice among nodes with equal scores. Not in the file: Kubernetes has no such field."""


def parse(text: str, *, seed: int = 0) -> Configuration:
    """Raises ConfigurationError."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"not YAML: {error}") from None
    top = _fields(
        document,
        "",
        ("apiVersion", "kind", "leaderElection", "podInitialBackoffSeconds", "podMaxBackoffSeconds", "profiles"),
    )
    if (top.get("apiVersion"), top.get("kind")) != (API_VERSION, KIND):
        raise ConfigurationError(f"expected apiVersion {API_VERSION} and kind {KIND}")
    election = _fields(top.get("leaderElection", {}), "leaderElection", ("resourceName",))
    profiles = top.get("profiles", [{}])
    if not isinstance(profiles, list) or len(profiles) != 1:
        raise ConfigurationError("profiles: exactly one profile is supported")
    profile = _fields(profiles[0], "profiles[0]", ("schedulerName", "plugins"))
    default = Configuration()
    return Configuration(
        scheduler_name=_text(profile.get("schedulerName", default.scheduler_name), "profiles[0].schedulerName"),
        election=_text(election.get("resourceName", default.election), "leaderElection.resourceName"),
        initial_backoff=_seconds(top.get("podInitialBackoffSeconds", default.initial_backoff), "podInitialBackoffSeconds"),
        max_backoff=_seconds(top.get("podMaxBackoffSeconds", default.max_backoff), "podMaxBackoffSeconds"),
        plugins=_plugins(profile.get("plugins", {}), "profiles[0].plugins"),
        seed=seed,
    )


def with_plugin(configuration: Configuration, spec: str) -> Configuration:
    """Enables one more plugin at all its points. Raises ConfigurationError."""
    return replace(configuration, plugins=[*configuration.plugins, Enabled(_load(spec, "--plugin"))])


def check(configuration: Configuration) -> Configuration:
    """Raises ConfigurationError when the plugins, together, are no profile."""
    try:
        Framework(configuration.scheduler_name, configuration.plugins)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    return configuration


def _plugins(raw: Any, path: str) -> list[Enabled]:
    enabled = {each.plugin.name: each for each in default_plugins()}
    sets = _fields(raw, path, POINTS)
    for point in POINTS:
        where = f"{path}.{point}"
        both = _fields(sets.get(point, {}), where, ("enabled", "disabled"))
        for name, _ in _entries(both.get("disabled", []), f"{where}.disabled", weighted=False):
            for target in list(enabled) if name == "*" else [name]:
                _disable(enabled, target, point, where)
        for spec, weight in _entries(both.get("enabled", []), f"{where}.enabled", weighted=True):
            _enable(enabled, spec, weight, point, where)
    return list(enabled.values())


def _disable(enabled: dict[str, Enabled], name: str, point: str, path: str) -> None:
    known = enabled.get(name)
    if known is None:
        raise ConfigurationError(f'{path}.disabled: no plugin "{name}" is enabled; there are {", ".join(enabled)}')
    if point == "multiPoint":
        del enabled[name]
    elif point == "filter":
        enabled[name] = replace(known, filters=False)
    else:
        enabled[name] = replace(known, scores=False)


def _enable(enabled: dict[str, Enabled], spec: str, weight: float, point: str, path: str) -> None:
    known = enabled.get(spec)
    if known is None:
        if spec in DEFAULTS:
            make, usual = DEFAULTS[spec]
            known = Enabled(make(), usual, filters=False, scores=False)
        else:
            known = Enabled(_load(spec, f"{path}.enabled"), filters=False, scores=False)
    everywhere = point == "multiPoint"
    enabled[known.plugin.name] = replace(
        known,
        weight=weight or known.weight or 1.0,
        filters=known.filters or everywhere or point == "filter",
        scores=known.scores or everywhere or point == "score",
    )


def _load(spec: str, path: str) -> Any:
    if ":" not in spec:
        raise ConfigurationError(f'{path}: no plugin "{spec}"; there are {", ".join(DEFAULTS)}, and module:Class')
    try:
        return load(spec)
    except PluginLoadError as error:
        raise ConfigurationError(f"{path}: {error}") from error


def _entries(raw: Any, path: str, *, weighted: bool) -> list[tuple[str, float]]:
    if not isinstance(raw, list):
        raise ConfigurationError(f"{path}: expected a list")
    found = []
    for index, item in enumerate(raw):
        entry = _fields(item, f"{path}[{index}]", ("name", "weight") if weighted else ("name",))
        weight = entry.get("weight", 0)
        if not isinstance(weight, int) or weight < 0:
            raise ConfigurationError(f"{path}[{index}].weight: expected a whole number, 0 (the usual weight) or more")
        found.append((_text(entry.get("name"), f"{path}[{index}].name"), float(weight)))
    return found


def _fields(raw: Any, path: str, allowed: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(raw, dict):
        raise ConfigurationError(f"{path or 'the document'}: expected fields ({', '.join(allowed)})")
    for name in raw:
        if name not in allowed:
            where = f"{path}.{name}" if path else str(name)
            raise ConfigurationError(f"{where}: not supported; there are {', '.join(allowed)}")
    return raw


def _text(raw: Any, path: str) -> str:
    if not isinstance(raw, str) or not raw:
        raise ConfigurationError(f"{path}: expected text")
    return raw


def _seconds(raw: Any, path: str) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float) or raw <= 0:
        raise ConfigurationError(f"{path}: expected a number of seconds, more than 0")
    return float(raw)
