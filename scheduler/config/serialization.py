"""KubeSchedulerConfiguration to Configuration and back, and the digest that a leader publishes.

An unknown field is an error that names the path of the field.
"""

import hashlib
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from pinnace.api import documents, names, wellknown
from pinnace.runtime.configuration import ConfigurationError, duration, fields, flag, items, seconds, text
from scheduler.config.configuration import (
    EVERYTHING,
    MULTI_POINT,
    NO_WEIGHT_GIVEN,
    Configuration,
    ProfileConfiguration,
    Source,
    built_in,
    demand_part,
    resolve,
    source,
)
from scheduler.extenders.interface import BIND, FILTER, HTTP_TIMEOUT, PREEMPT, PRIORITIZE, ExtenderConfiguration, Tls
from scheduler.extenders.rpc import METHODS
from scheduler.framework.interface import CompletesArgs, Plugin
from scheduler.framework.profile import Point, takes_part

_VERBS = {"filterVerb": FILTER, "prioritizeVerb": PRIORITIZE, "preemptVerb": PREEMPT, "bindVerb": BIND}
_EXTENDER_FIELDS = (
    "urlPrefix",
    *_VERBS,
    "weight",
    "enableHTTPS",
    "tlsConfig",
    "httpTimeout",
    "nodeCacheCapable",
    "managedResources",
    "ignorable",
)
_TLS_FIELDS = ("insecure", "caFile", "certFile", "keyFile")


def parse_extenders(raw: Any, path: str) -> tuple[ExtenderConfiguration, ...]:
    """Raises ConfigurationError."""
    found = tuple(_extender(item, f"{path}[{index}]") for index, item in enumerate(items(raw, path)))
    binders = [extender for extender in found if BIND in extender.verbs]
    if len(binders) > 1:
        raise ConfigurationError(
            f"{path}: found {len(binders)} extenders implementing bind: only one extender can implement bind"
        )
    seen: set[str] = set()
    for index, extender in enumerate(found):
        if extender.url_prefix in (other.url_prefix for other in found[:index]):
            raise ConfigurationError(f"{path}[{index}].urlPrefix: {extender.url_prefix} is there already")
        for name in extender.managed_resources:
            if name in seen:
                raise ConfigurationError(f"{path}[{index}].managedResources: duplicate extender managed resource name {name}")
            seen.add(name)
    return found


def write_extender(extender: ExtenderConfiguration) -> Mapping[str, Any]:
    """With everything filled in, but verbs that it does not have."""
    given = {name: extender.verbs[verb] for name, verb in _VERBS.items() if verb in extender.verbs}
    tls = extender.tls
    secure = (
        {"insecure": tls.insecure, "caFile": tls.ca_file, "certFile": tls.cert_file, "keyFile": tls.key_file} if tls else {}
    )
    return {
        "urlPrefix": extender.url_prefix,
        **given,
        "weight": extender.weight,
        "enableHTTPS": extender.enable_https,
        **({"tlsConfig": {name: value for name, value in secure.items() if value != ""}} if tls else {}),
        "httpTimeout": f"{Decimal(repr(extender.timeout)).normalize():f}s",
        "nodeCacheCapable": extender.node_cache_capable,
        "managedResources": [
            {"name": name, "ignoredByScheduler": ignored} for name, ignored in extender.managed_resources.items()
        ],
        "ignorable": extender.ignorable,
    }


def _extender(raw: Any, path: str) -> ExtenderConfiguration:
    given = fields(raw, path, _EXTENDER_FIELDS)
    url = text(given.get("urlPrefix"), f"{path}.urlPrefix")
    scheme = _scheme(url, f"{path}.urlPrefix")
    verbs = {verb: _verb(given[name], f"{path}.{name}") for name, verb in _VERBS.items() if given.get(name, "") != ""}
    if not verbs:
        raise ConfigurationError(f"{path}: expected at least one of {', '.join(_VERBS)}")
    for name, verb in _VERBS.items():
        if scheme == "grpc" and verbs.get(verb, METHODS[verb]) != METHODS[verb]:
            raise ConfigurationError(f"{path}.{name}: expected {METHODS[verb]}, the name of the method of pinnace.v1.Extender")
    enable_https = flag(given.get("enableHTTPS", False), f"{path}.enableHTTPS")
    for name in ("enableHTTPS", "tlsConfig"):
        if scheme != "https" and given.get(name):
            raise ConfigurationError(f"{path}.{name}: only with an urlPrefix that begins with https://")
    return ExtenderConfiguration(
        url_prefix=url,
        verbs=verbs,
        weight=_weight(given.get("weight", 0), PRIORITIZE in verbs, f"{path}.weight"),
        enable_https=enable_https,
        tls=_tls(given["tlsConfig"], f"{path}.tlsConfig") if "tlsConfig" in given else None,
        timeout=duration(given["httpTimeout"], f"{path}.httpTimeout") if "httpTimeout" in given else HTTP_TIMEOUT,
        node_cache_capable=flag(given.get("nodeCacheCapable", False), f"{path}.nodeCacheCapable"),
        managed_resources=_managed(given.get("managedResources", []), f"{path}.managedResources"),
        ignorable=flag(given.get("ignorable", False), f"{path}.ignorable"),
    )


def _verb(raw: Any, path: str) -> str:
    """A part of a URL's path."""
    verb = text(raw, path)
    if not _goes_into_a_url(verb):
        raise ConfigurationError(f"{path}: expected a part of a URL, got {verb}")
    return verb


def _goes_into_a_url(raw: str) -> bool:
    return raw.isascii() and raw.isprintable() and " " not in raw


def _scheme(url: str, path: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port
        complete = parts.scheme in ("http", "https", "grpc") and parts.hostname and not (parts.query or parts.fragment)
        (parts.hostname or "").encode("idna")  # as it is looked up; refuses empty labels, and long ones
        if not _goes_into_a_url(url) or not complete or (parts.scheme == "grpc" and (port is None or parts.path.strip("/"))):
            raise ValueError
    except ValueError:
        raise ConfigurationError(f"{path}: expected http://, https:// or grpc://host:port, got {url}") from None
    return parts.scheme


def _weight(raw: Any, needed: bool, path: str) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int) or raw < 0:
        raise ConfigurationError(f"{path}: expected a whole number")
    if needed and not raw:
        raise ConfigurationError(f"{path}: must have a positive weight applied to it")
    return raw


def _tls(raw: Any, path: str) -> Tls:
    given = fields(raw, path, _TLS_FIELDS)
    files = {name: text(given[name], f"{path}.{name}") if name in given else "" for name in _TLS_FIELDS[1:]}
    if files["keyFile"] and not files["certFile"]:
        raise ConfigurationError(f"{path}.keyFile: only together with certFile")
    return Tls(flag(given.get("insecure", False), f"{path}.insecure"), files["caFile"], files["certFile"], files["keyFile"])


def _managed(raw: Any, path: str) -> dict[str, bool]:
    found: dict[str, bool] = {}
    for index, item in enumerate(items(raw, path)):
        where = f"{path}[{index}]"
        given = fields(item, where, ("name", "ignoredByScheduler"))
        name = text(given.get("name"), f"{where}.name")
        if problems := _extended(name):
            raise ConfigurationError(f"{where}.name: {problems[0]}")
        if name in found:
            raise ConfigurationError(f"{where}.name: duplicate extender managed resource name {name}")
        found[name] = flag(given.get("ignoredByScheduler", False), f"{where}.ignoredByScheduler")
    return found


def _extended(name: str) -> Sequence[str]:
    """What is wrong with the name of an extended resource."""
    if problems := names.label_key(name):
        return problems
    return () if names.is_extended_resource(name) else (f"{name} is an invalid extended resource name",)


API_VERSION = "kubescheduler.config.k8s.io/v1"
KIND = "KubeSchedulerConfiguration"
_FIELDS = (
    "apiVersion",
    "kind",
    "leaderElection",
    "podInitialBackoffSeconds",
    "podMaxBackoffSeconds",
    "profiles",
    "extenders",
)


def parse(document: str, *, seed: int = 0) -> Configuration:
    """Raises ConfigurationError."""
    try:
        found = documents.plain(document)
    except documents.DocumentError as error:
        raise ConfigurationError(f"line {error.line}: {error}") from None
    if len(found) > 1:
        raise ConfigurationError(f"expected one document, got {len(found)}")
    top = fields(found[0] if found else None, "", _FIELDS)
    if (top.get("apiVersion"), top.get("kind")) != (API_VERSION, KIND):
        raise ConfigurationError(f"expected apiVersion {API_VERSION} and kind {KIND}")
    election = fields(top.get("leaderElection", {}), "leaderElection", ("resourceName",))
    raw_profiles = items(top.get("profiles", []), "profiles") or [{}]
    nameless = wellknown.DEFAULT_SCHEDULER if len(raw_profiles) == 1 else None
    profiles = tuple(_parse_profile(raw, f"profiles[{index}]", nameless) for index, raw in enumerate(raw_profiles))
    names = [profile.scheduler_name for profile in profiles]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ConfigurationError(f"profiles[{index}].schedulerName: {name} has a profile already")
    default = Configuration()
    initial = seconds(top.get("podInitialBackoffSeconds", default.initial_backoff), "podInitialBackoffSeconds")
    longest = seconds(top.get("podMaxBackoffSeconds", default.max_backoff), "podMaxBackoffSeconds")
    if longest < initial:
        raise ConfigurationError(
            f"podMaxBackoffSeconds: expected podInitialBackoffSeconds ({initial:g}) at least, got {longest:g}"
        )
    return Configuration(
        election=text(election.get("resourceName", default.election), "leaderElection.resourceName"),
        initial_backoff=initial,
        max_backoff=longest,
        profiles=profiles,
        extenders=parse_extenders(top.get("extenders", []), "extenders"),
        seed=seed,
    )


def with_plugin(configuration: Configuration, spec: str) -> Configuration:
    """Enables one more plugin at all its points, in all profiles. Raises ConfigurationError."""
    return replace(configuration, profiles=tuple(_and(profile, spec) for profile in configuration.profiles))


def _and(profile: ProfileConfiguration, spec: str) -> ProfileConfiguration:
    sources = dict(profile.sources)
    name, added = source(spec, "--plugin", sources)
    if name in profile.plugins:
        raise ConfigurationError(f"--plugin: {name} is enabled twice")
    demand_part(name, added, "--plugin")
    points = {point: [*old, name] if takes_part(added.plugin, point) else old for point, old in profile.points.items()}
    weights = dict(profile.weights) | ({name: NO_WEIGHT_GIVEN} if name in points[Point.SCORE] else {})
    return replace(profile, points=points, weights=weights, sources=sources)


def _parse_profile(raw: Any, path: str, nameless: str | None) -> ProfileConfiguration:
    """`nameless`: what it is called without a name; None: it must have one."""
    profile = fields(raw, path, ("schedulerName", "plugins", "pluginConfig"))
    sources = built_in()
    resolved = resolve(profile.get("plugins", {}), f"{path}.plugins", sources)
    return ProfileConfiguration(
        scheduler_name=text(profile.get("schedulerName", nameless), f"{path}.schedulerName"),
        points=resolved.points,
        weights=resolved.weights,
        args=_parse_args(profile.get("pluginConfig", []), f"{path}.pluginConfig", sources),
        sources=sources,
    )


def _parse_args(raw: Any, path: str, sources: dict[str, Source]) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for index, item in enumerate(items(raw, path)):
        where = f"{path}[{index}]"
        entry = fields(item, where, ("name", "args"))
        name, _ = source(text(entry.get("name"), f"{where}.name"), f"{where}.name", sources)
        args = entry.get("args", {})
        if not isinstance(args, dict):
            raise ConfigurationError(f"{where}.args: expected fields")
        if name in found:
            raise ConfigurationError(f"{where}.name: {name} is configured twice")
        for field, expected in (("apiVersion", API_VERSION), ("kind", f"{name}Args")):
            if args.get(field) not in (None, expected):
                raise ConfigurationError(f"{where}.args.{field}: expected {expected}")
        found[name] = {
            field: value for field, value in args.items() if value is not None and field not in ("apiVersion", "kind")
        }
    return found


log = logging.getLogger(__name__)


def write(configuration: Configuration) -> str:
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "leaderElection": {"resourceName": configuration.election},
        "podInitialBackoffSeconds": _number(configuration.initial_backoff),
        "podMaxBackoffSeconds": _number(configuration.max_backoff),
        "profiles": [_write_profile(profile) for profile in configuration.profiles],
        "extenders": [write_extender(extender) for extender in configuration.extenders],
    }
    return yaml.safe_dump(document, sort_keys=False)


def digest(configuration: Configuration) -> str:
    """Of all that decides about nodes: profiles, arguments, extenders, and the source files of plugins that are not built in,
    wherever these files are. The election, the backoffs and the seed do not count. Empty: there is none, as a plugin's
    `complete` fails."""
    try:
        profiles = [_write_profile(_by_content(profile)) for profile in configuration.profiles]
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


def _write_profile(profile: ProfileConfiguration) -> Mapping[str, Any]:
    """Every point lists its plugins: nothing is left to `multiPoint`, so that one sees who runs where, in which order."""
    plugins: dict[str, Any] = {MULTI_POINT: {"disabled": [{"name": EVERYTHING}]}}
    for point, enabled in profile.points.items():
        if enabled:
            plugins[point.value] = {"enabled": [_entry(profile, point, name) for name in enabled]}
    return {
        "schedulerName": profile.scheduler_name,
        "plugins": plugins,
        "pluginConfig": [
            {"name": profile.sources[name].spec, "args": args}
            for name in profile.plugins
            if (args := _write_args(profile, name))
        ],
    }


def _entry(profile: ProfileConfiguration, point: Point, name: str) -> Mapping[str, Any]:
    entry: dict[str, Any] = {"name": profile.sources[name].spec}
    if point is Point.SCORE:
        entry["weight"] = _number(profile.weights[name])
    return entry


def _write_args(profile: ProfileConfiguration, name: str) -> Mapping[str, Any]:
    """Those that were given, and the plugin's own defaults where it tells them (`complete`)."""
    given = dict(profile.args.get(name, {}))
    plugin = profile.sources[name].plugin
    return plugin.complete(given) if isinstance(plugin, CompletesArgs) else given


def _number(value: float) -> float | int:
    return int(value) if value == int(value) else value
