"""What --admission-control-config-file says: YAML documents of the kinds MutatingWebhookConfiguration and
ValidatingWebhookConfiguration, with Kubernetes' fields but for clientConfig.

    apiVersion: admissionregistration.k8s.io/v1
    kind: ValidatingWebhookConfiguration
    metadata: {name: teams}
    webhooks:
    - name: teams.example.com
      clientConfig: {url: grpcs://host:port, caFile: ca.crt}    or grpc://host:port, without TLS
      rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods], scope: Namespaced}]
      namespaceSelector: {}
      objectSelector: {}
      failurePolicy: Fail                                       or Ignore
      timeoutSeconds: 10                                        1 to 30
      sideEffects: None                                         or NoneOnDryRun, Some, Unknown

Source: the same page as in apiserver.webhooks
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apiserver.registry.admission import Operation
from apiserver.registry.patching import RESIZE, STATUS
from apiserver.registry.validation.labels import validate_selector
from pinnace.api import documents, names
from pinnace.api.codec import CodecError, from_dict
from pinnace.api.meta_v1_pb2 import LabelSelector as SelectorMessage
from pinnace.api.resources import ALL, PODS, Resource
from pinnace.api.selectors import LabelSelector, from_message
from pinnace.api.status import Violation
from pinnace.runtime.configuration import ConfigurationError, fields, items, text
from pinnace.runtime.http import parse_address

API_VERSION = "admissionregistration.k8s.io/v1"
MUTATING, VALIDATING = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
TIMEOUT, MAX_TIMEOUT = 10, 30
"""Seconds; Kubernetes' default, and the most that it allows."""
EVERY = LabelSelector()
_NO_EFFECTS = ("None", "NoneOnDryRun")
_SIDE_EFFECTS = (*_NO_EFFECTS, "Some", "Unknown")
_WHOLE = (("CREATE", Operation.CREATE), ("UPDATE", Operation.UPDATE), ("DELETE", Operation.DELETE))
_FIELDS = (
    "name",
    "clientConfig",
    "rules",
    "namespaceSelector",
    "objectSelector",
    "failurePolicy",
    "timeoutSeconds",
    "sideEffects",
)
_RULE_FIELDS = ("operations", "apiGroups", "apiVersions", "resources", "scope")

Concern = tuple[Operation, Resource[Any]]


@dataclass(frozen=True, slots=True)
class WebhookConfiguration:
    name: str
    address: str
    """host:port"""
    concerns: frozenset[Concern]
    """What it is asked about."""
    mutating: bool = False
    tls: bool = False
    ca: Path | None = None
    """Whom to trust; None: whom the server trusts."""
    namespaces: LabelSelector = EVERY
    objects: LabelSelector = EVERY
    ignore_failures: bool = False
    timeout: int = TIMEOUT
    """Seconds."""
    dry_run: bool = True
    """May it be asked when nothing is written?"""


def parse(document: str, folder: Path = Path()) -> tuple[WebhookConfiguration, ...]:
    """In the order in which they are asked. Relative names of files are looked up in `folder`. Raises ConfigurationError."""
    try:
        raws = documents.plain(document)
    except documents.DocumentError as error:
        raise ConfigurationError(f"line {error.line}: {error}") from None
    found: list[WebhookConfiguration] = []
    for number, raw in enumerate(raws, 1):
        where = f"document {number}: " if len(raws) > 1 else ""
        try:
            found += _document(raw, folder)
        except ConfigurationError as error:
            raise ConfigurationError(f"{where}{error}") from None
    return tuple(found)


def _document(raw: Any, folder: Path) -> Sequence[WebhookConfiguration]:
    top = fields(raw, "", ("apiVersion", "kind", "metadata", "webhooks"))
    if top.get("apiVersion") != API_VERSION or top.get("kind") not in (MUTATING, VALIDATING):
        raise ConfigurationError(f"expected apiVersion {API_VERSION} and kind {MUTATING} or {VALIDATING}")
    webhooks = [
        _webhook(item, f"webhooks[{index}]", top["kind"] == MUTATING, folder)
        for index, item in enumerate(items(top.get("webhooks"), "webhooks"))
    ]
    for index, each in enumerate(webhooks):
        if each.name in (other.name for other in webhooks[:index]):
            raise ConfigurationError(f"webhooks[{index}].name: {each.name} is there already")
    return webhooks


def _webhook(raw: Any, path: str, mutating: bool, folder: Path) -> WebhookConfiguration:
    given = fields(raw, path, _FIELDS)
    name = text(given.get("name"), f"{path}.name")
    if problems := names.dns_subdomain(name):
        raise ConfigurationError(f"{path}.name: {problems[0]}")
    if len(name.split(".")) < 3:
        raise ConfigurationError(f"{path}.name: should be a domain with at least three segments separated by dots")
    client = fields(given.get("clientConfig"), f"{path}.clientConfig", ("url", "caFile"))
    tls, address = _url(client.get("url"), f"{path}.clientConfig.url")
    rules = items(given.get("rules"), f"{path}.rules")
    return WebhookConfiguration(
        name=name,
        address=address,
        concerns=frozenset(each for at, rule in enumerate(rules) for each in _rule(rule, f"{path}.rules[{at}]")),
        mutating=mutating,
        tls=tls,
        ca=_file(client["caFile"], f"{path}.clientConfig.caFile", tls, folder) if "caFile" in client else None,
        namespaces=_selector(given.get("namespaceSelector", {}), f"{path}.namespaceSelector"),
        objects=_selector(given.get("objectSelector", {}), f"{path}.objectSelector"),
        ignore_failures=_choice(given.get("failurePolicy", "Fail"), f"{path}.failurePolicy", ("Fail", "Ignore")) == "Ignore",
        timeout=_timeout(given.get("timeoutSeconds", TIMEOUT), f"{path}.timeoutSeconds"),
        dry_run=_choice(given.get("sideEffects"), f"{path}.sideEffects", _SIDE_EFFECTS) in _NO_EFFECTS,
    )


def _url(raw: Any, path: str) -> tuple[bool, str]:
    """Is there TLS, and host:port."""
    scheme, _, address = text(raw, path).partition("://")
    try:
        if scheme not in ("grpc", "grpcs"):
            raise ValueError
        parse_address(address)
    except ValueError:
        raise ConfigurationError(f"{path}: expected grpc://host:port or grpcs://host:port, got {raw}") from None
    return scheme == "grpcs", address


def _file(raw: Any, path: str, tls: bool, folder: Path) -> Path:
    file = folder / text(raw, path)
    if not tls:
        raise ConfigurationError(f"{path}: only with a url that begins with grpcs://")
    if not file.is_file():
        raise ConfigurationError(f"{path}: there is no file {file}")
    return file


def _rule(raw: Any, path: str) -> Sequence[Concern]:
    given = fields(raw, path, _RULE_FIELDS)
    operations = _all_or_some(given.get("operations"), f"{path}.operations", (*(name for name, _ in _WHOLE), "*"))
    groups = _all_or_some(given.get("apiGroups"), f"{path}.apiGroups")
    versions = _all_or_some(given.get("apiVersions"), f"{path}.apiVersions")
    if "" in versions:
        raise ConfigurationError(f"{path}.apiVersions[{versions.index('')}]: must not be empty")
    scope = _choice(given.get("scope", "*"), f"{path}.scope", ("Cluster", "Namespaced", "*"))
    found: list[Concern] = []
    resources = _names(given.get("resources"), f"{path}.resources")
    _distinct(resources, f"{path}.resources")
    for at, each in enumerate(resources):
        plural, _, subresource = each.partition("/")
        if (plural != "*" and plural not in (known.plural for known in ALL)) or subresource not in _subresources(plural):
            where = f"{path}.resources[{at}]"
            raise ConfigurationError(f"{where}: there is no {each}; expected pods, pods/status, pods/*, */*, * and the like")
        found += [
            (operation, resource)
            for resource in ALL
            if plural in ("*", resource.plural)
            and _matches(resource.group, groups)
            and _matches(resource.api_version.rpartition("/")[2], versions)
            and scope in ("*", "Namespaced" if resource.namespaced else "Cluster")
            for operation in _concerned(operations, subresource)
        ]
    return found


def _concerned(operations: Sequence[str], subresource: str) -> Sequence[Operation]:
    """`pods` means the objects alone, `pods/status` one subresource alone, `pods/*` the objects with all of them."""
    found: list[Operation] = []
    if subresource in ("", "*"):
        found += [operation for name, operation in _WHOLE if _matches(name, operations)]
    if _matches("UPDATE", operations):
        if subresource in ("*", STATUS):
            found.append(Operation.UPDATE_STATUS)
        if subresource in ("*", RESIZE):
            found.append(Operation.RESIZE)
    return found


def _subresources(plural: str) -> Sequence[str]:
    """Those that a rule about the resource may name."""
    return ("", "*", STATUS, RESIZE) if plural in ("*", PODS.plural) else ("", "*", STATUS)


def _matches(name: str, wanted: Sequence[str]) -> bool:
    return "*" in wanted or name in wanted


def _names(raw: Any, path: str, allowed: Sequence[str] = ()) -> Sequence[str]:
    """At least one."""
    found: list[str] = items(raw, path)
    for index, each in enumerate(found):
        if not isinstance(each, str) or (allowed and each not in allowed):
            raise ConfigurationError(f"{path}[{index}]: expected {' or '.join(allowed) or 'text'}")
    if not found:
        raise ConfigurationError(f"{path}: expected at least one")
    return found


def _all_or_some(raw: Any, path: str, allowed: Sequence[str] = ()) -> Sequence[str]:
    found = _names(raw, path, allowed)
    if "*" in found and len(found) > 1:
        raise ConfigurationError(f"{path}: if '*' is present, must not specify others")
    return found


def _distinct(resources: Sequence[str], path: str) -> None:
    """No name has what another has already: who writes both takes one for something else. As in Kubernetes, a subresource may
    be named before a name that has it, too. Raises ConfigurationError."""
    if "*/*" in resources and len(resources) > 1:
        raise ConfigurationError(f"{path}: if '*/*' is present, must not specify other resources")
    for at, each in enumerate(resources):
        plural, slash, subresource = each.partition("/")
        wider, among = ((f"{plural}/*", f"*/{subresource}"), resources[:at]) if slash else (("*",), resources)
        for wild in wider:
            if wild != each and wild in among:
                raise ConfigurationError(f"{path}[{at}]: if '{wild}' is present, must not specify {each}")


def _choice(raw: Any, path: str, allowed: Sequence[str]) -> str:
    if raw not in allowed:
        raise ConfigurationError(f"{path}: expected {', '.join(allowed[:-1])} or {allowed[-1]}")
    return str(raw)


def _timeout(raw: Any, path: str) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int) or not 1 <= raw <= MAX_TIMEOUT:
        raise ConfigurationError(f"{path}: the timeout value must be between 1 and {MAX_TIMEOUT} seconds")
    return raw


def _selector(raw: Any, path: str) -> LabelSelector:
    try:
        message = from_dict(SelectorMessage, raw)
    except CodecError as error:
        wrong = [Violation(problem.field, problem.message) for problem in error.problems]
        raise ConfigurationError("; ".join(f"{path}.{each}" if each.field else f"{path}: {each}" for each in wrong)) from None
    problems: list[Violation] = []
    validate_selector(message, path, problems)
    if problems:
        raise ConfigurationError("; ".join(map(str, problems)))
    return from_message(message)
