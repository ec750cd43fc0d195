"""From a configuration back to a text that says the same, with everything filled in: `parse` reads it as it was.

`digest` tells whether two configurations decide alike.
"""

import hashlib
import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from scheduler.config.extenders import write_extender
from scheduler.config.model import Configuration, ProfileConfiguration, Source
from scheduler.config.parse import API_VERSION, KIND
from scheduler.config.plugins import EVERYTHING, MULTI_POINT
from scheduler.framework.interface import CompletesArgs, Plugin
from scheduler.framework.points import Point

log = logging.getLogger(__name__)


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


def digest(configuration: Configuration) -> str:
    """Of all that decides about nodes: profiles, arguments, extenders, and the source files of plugins that are not built in,
    wherever these files are. The election, the backoffs and the seed do not count. Empty: there is none, as a plugin's
    `complete` fails."""
    try:
        profiles = [_profile(_by_content(profile)) for profile in configuration.profiles]
        extenders = [write_extender(extender) for extender in configuration.extenders]
        text = json.dumps([profiles, extenders], sort_keys=True, default=str)
    except Exception as error:  # `complete` is the code of users
        log.warning("the configuration has no digest: %s: %s", type(error).__name__, error)
        return ""
    return hashlib.sha256(text.encode()).hexdigest()


def _by_content(profile: ProfileConfiguration) -> ProfileConfiguration:
    """The profile, with plugins that are not built in named by what is in their files."""
    sources = {
        name: Source(f"{name}@{_content(source.spec, source.plugin)}", source.plugin) if ":" in source.spec else source
        for name, source in profile.sources.items()
    }
    return replace(profile, sources=sources)


@cache
def _content(spec: str, plugin: type[Plugin]) -> str:
    """Digest of the file that the class is from. It is made once: the file may change later, and the loaded class does not."""
    where = spec.rpartition(":")[0]
    file = where if where.endswith(".py") else getattr(sys.modules.get(where), "__file__", None)
    return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else ""


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
