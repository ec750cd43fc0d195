"""`extenders`: those outside the scheduler that have a say (`scheduler.extenders`).

    urlPrefix: http://127.0.0.1:8888/scheduler     http://, https:// or grpc://host:port
    filterVerb, prioritizeVerb, preemptVerb, bindVerb
    weight: 1                                      of its scores
    enableHTTPS: false                             with https:// only
    tlsConfig: {insecure: false, caFile: "", certFile: "", keyFile: ""}
    httpTimeout: 5s                                of one call, over gRPC as well
    nodeCacheCapable: false
    managedResources: [{name: example.com/gpu, ignoredByScheduler: true}]
    ignorable: false

Over gRPC verbs have the names of the service's methods: Filter, Prioritize, Preempt, Bind.
Source: Extender in k8s.io/kube-scheduler/config/v1, and validateExtenders in k8s.io/kubernetes/pkg/scheduler/apis/config
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

from pinnace.api import names
from pinnace.runtime.configuration import ConfigurationError, duration, fields, flag, items, text
from scheduler.extenders.configuration import BIND, FILTER, HTTP_TIMEOUT, PREEMPT, PRIORITIZE, ExtenderConfiguration, Tls
from scheduler.extenders.rpc import METHODS

_VERBS = {"filterVerb": FILTER, "prioritizeVerb": PRIORITIZE, "preemptVerb": PREEMPT, "bindVerb": BIND}
_FIELDS = (
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
    given = fields(raw, path, _FIELDS)
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
