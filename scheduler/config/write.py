"""From a configuration back to a text that says the same, with everything filled in: `parse` reads it as it was."""

from collections.abc import Mapping
from typing import Any

import yaml

from scheduler.config.extenders import write_extender
from scheduler.config.model import Configuration, ProfileConfiguration
from scheduler.config.parse import API_VERSION, KIND
from scheduler.config.plugins import EVERYTHING, MULTI_POINT
from scheduler.framework.interface import CompletesArgs
from scheduler.framework.points import Point


def write(configuration: Configuration) -> str:
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "leaderElection": {"resourceName": configuration.election},
        "podInitialBackoffSeconds": _number(configuration.initial_backoff),
        "podMaxBackoffSeconds": _number(configuration.max_backoff),
        "profiles": [_profile(profile) for profile in configuration.profiles],
        "extenders": [write_extender(extender) for extender in configuration.extenders],
    }
    return yaml.safe_dump(document, sort_keys=False)


def _profile(profile: ProfileConfiguration) -> Mapping[str, Any]:
    """Every point lists its plugins: nothing is left to `multiPoint`, so that one sees who runs where, in which order."""
    plugins: dict[str, Any] = {MULTI_POINT: {"disabled": [{"name": EVERYTHING}]}}
    for point, names in profile.points.items():
        if names:
            plugins[point.value] = {"enabled": [_entry(profile, point, name) for name in names]}
    return {
        "schedulerName": profile.scheduler_name,
        "plugins": plugins,
        "pluginConfig": [
            {"name": profile.sources[name].spec, "args": args} for name in profile.plugins if (args := _args(profile, name))
        ],
    }


def _entry(profile: ProfileConfiguration, point: Point, name: str) -> Mapping[str, Any]:
    entry: dict[str, Any] = {"name": profile.sources[name].spec}
    if point is Point.SCORE:
        entry["weight"] = _number(profile.weights[name])
    return entry


def _args(profile: ProfileConfiguration, name: str) -> Mapping[str, Any]:
    """Those that were given, and the plugin's own defaults where it tells them (`complete`)."""
    given = dict(profile.args.get(name, {}))
    plugin = profile.sources[name].plugin
    return plugin.complete(given) if isinstance(plugin, CompletesArgs) else given


def _number(value: float) -> float | int:
    return int(value) if value == int(value) else value
