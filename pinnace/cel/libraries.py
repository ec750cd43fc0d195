"""Kubernetes' libraries: quantities, URLs, IP addresses and networks, semantic versions, named formats, regular expressions,
and the authorizer.

Source: staging/src/k8s.io/apiserver/pkg/cel/library of Kubernetes 1.36
"""

import base64
import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote

from pinnace.api import names
from pinnace.api import quantity as quantities
from pinnace.cel.checker import TYPE_NAMES
from pinnace.cel.conversions import MAX_INT, MIN_INT, find_all_patterns, find_pattern, parse_timestamp, quote
from pinnace.cel.functions import declare, define_type
from pinnace.cel.meter import Meter
from pinnace.cel.types import ABSENT, NAMES, EvaluationFailure, Optional, Type

_EXACT = Context(prec=400)
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*", re.ASCII)
_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")
_HOST = re.compile(r"(?:[^@/?#]*@)?(?:\[[0-9A-Fa-f:.%]*\]|[A-Za-z0-9._~!$&'()*+,;=%\x80-\U0010ffff\"<>-]*)(?::\d*)?")
_PATH_SAFE = re.compile(r"[^A-Za-z0-9/$&+,:;=@._~!*'()%\[\]-]")
_IP_CHARACTERS = re.compile(r"[0-9A-Fa-f:.]{1,45}")
_NUMBER = r"(0|[1-9]\d{0,18})"
_IDENTIFIERS = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_SEMVER = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_IDENTIFIERS}))?(?:\+({_IDENTIFIERS}))?", re.ASCII)
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_LABEL_1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end "
    "with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_UUID = re.compile(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.ASCII)


def _register(short: str, name: str, kind: str, value_class: type) -> None:
    define_type(short, Type(kind, name))
    NAMES[value_class] = name
    TYPE_NAMES[name] = Type(kind, name)


# Quantities


@dataclass(frozen=True, slots=True)
class Quantity:
    value: Decimal


def _parse_quantity(text: str) -> Quantity:
    try:
        return Quantity(quantities.parse(text))
    except quantities.QuantityError:
        raise EvaluationFailure(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        ) from None


def _is_valid(parse: Callable[..., Any]) -> Callable[..., bool]:
    def is_valid(*args: Any) -> bool:
        try:
            parse(*args)
        except EvaluationFailure:
            return False
        return True

    return is_valid


def _is_integer(a: Quantity) -> bool:
    return a.value == a.value.to_integral_value() and MIN_INT <= a.value <= MAX_INT


def _as_integer(a: Quantity) -> int:
    if not _is_integer(a):
        raise EvaluationFailure("cannot convert value to integer")
    return int(a.value)


def _compare(a: Any, b: Any) -> int:
    return int(a > b) - int(a < b)


def _declare_quantities() -> None:
    _register("quantity", "kubernetes.Quantity", "struct", Quantity)
    declare("string_to_quantity", "quantity(string): quantity", _parse_quantity)
    declare("is_quantity_string", "isQuantity(string): bool", _is_valid(_parse_quantity))
    declare("quantity_sign", "sign(quantity): int", lambda a: _compare(a.value, 0))
    declare("quantity_sign_member", ":quantity:sign(): int", lambda a: _compare(a.value, 0))
    declare("quantity_is_greater_than", ":quantity:isGreaterThan(quantity): bool", lambda a, b: a.value > b.value)
    declare("quantity_is_less_than", ":quantity:isLessThan(quantity): bool", lambda a, b: a.value < b.value)
    declare("quantity_compare_to", ":quantity:compareTo(quantity): int", lambda a, b: _compare(a.value, b.value))
    declare("quantity_get_float", ":quantity:asApproximateFloat(): double", lambda a: float(a.value))
    declare("quantity_get_int", ":quantity:asInteger(): int", _as_integer)
    declare("quantity_is_integer", ":quantity:isInteger(): bool", _is_integer)
    declare("quantity_add", ":quantity:add(quantity): quantity", lambda a, b: Quantity(_EXACT.add(a.value, b.value)))
    declare("quantity_add_int", ":quantity:add(int): quantity", lambda a, b: Quantity(_EXACT.add(a.value, Decimal(b))))
    declare("quantity_sub", ":quantity:sub(quantity): quantity", lambda a, b: Quantity(_EXACT.subtract(a.value, b.value)))
    declare("quantity_sub_int", ":quantity:sub(int): quantity", lambda a, b: Quantity(_EXACT.subtract(a.value, Decimal(b))))


# URLs


@dataclass(frozen=True, slots=True)
class Url:
    scheme: str
    host: str
    path: str
    query: str


def _parse_url(text: str) -> Url:
    """Parse an absolute URI or an absolute path, as Go's url.ParseRequestURI does."""

    def fail(reason: str) -> EvaluationFailure:
        return EvaluationFailure(f"URL parse error during conversion from string: parse {quote(text[:200])}: {reason}")

    if any(ord(char) < 0x20 or ord(char) == 0x7F for char in text):
        raise fail("net/url: invalid control character in URL")
    if not text:
        raise fail("empty url")
    scheme, colon, rest = text.partition(":")
    if text.startswith(":"):
        raise fail("missing protocol scheme")
    if not colon or not _SCHEME.fullmatch(scheme):
        scheme, rest = "", text
    rest, _, query = rest.partition("?")
    host = ""
    if not rest.startswith("/"):
        if scheme:
            return Url(scheme.lower(), "", "", query)
        raise fail("invalid URI for request")
    path = rest
    if (scheme or not rest.startswith("///")) and rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        path = slash + path
    if not _HOST.fullmatch(host):
        raise fail("invalid character in host name")
    if _BAD_ESCAPE.search(path):
        raise fail("invalid URL escape")
    return Url(scheme.lower(), host.rpartition("@")[2], path, query)


def _host_name(url: Url) -> str:
    host = url.host
    if host.startswith("["):
        return host[1 : host.find("]")]
    return host.rpartition(":")[0] if ":" in host else host


def _url_port(url: Url) -> str:
    rest = url.host.rpartition("]")[2]
    return rest.rpartition(":")[2] if ":" in rest else ""


def _escaped_path(meter: Meter, url: Url) -> str:
    meter.charge(0, len(url.path) // 8)
    return _PATH_SAFE.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), url.path)


def _parse_query(meter: Meter, url: Url) -> dict[str, list[str]]:
    meter.charge(0, len(url.query) // 2)
    return parse_qs(url.query, keep_blank_values=True)


def _declare_urls() -> None:
    _register("url", "kubernetes.URL", "struct", Url)
    declare("string_to_url", "url(string): url", _parse_url)
    declare("is_url_string", "isURL(string): bool", _is_valid(_parse_url))
    declare("url_get_scheme", ":url:getScheme(): string", lambda url: url.scheme)
    declare("url_get_host", ":url:getHost(): string", lambda url: unquote(url.host))
    declare("url_get_hostname", ":url:getHostname(): string", _host_name)
    declare("url_get_port", ":url:getPort(): string", _url_port)
    declare("url_get_escaped_path", ":url:getEscapedPath(): string", _escaped_path, takes_meter=True)
    declare("url_get_query", ":url:getQuery(): map(string, list(string))", _parse_query, takes_meter=True)


# Addresses


@dataclass(frozen=True, slots=True)
class Cidr:
    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    bits: int

    @property
    def network(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
        return ipaddress.ip_network((str(self.address), self.bits), strict=False)


@dataclass(frozen=True, slots=True)
class Ip:
    address: ipaddress.IPv4Address | ipaddress.IPv6Address


def _parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    if "%" in text and ":" in text:
        raise EvaluationFailure(f"IP address {quote(text[:100])} with zone value is not allowed")
    try:
        if not _IP_CHARACTERS.fullmatch(text):
            raise ValueError("unable to parse IP")
        address = ipaddress.ip_address(text)
    except ValueError:
        shown = quote(text[:100])
        raise EvaluationFailure(
            f"IP Address {shown} parse error during conversion from string: ParseAddr({shown}): unable to parse IP"
        ) from None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise EvaluationFailure(f"IPv4-mapped IPv6 address {quote(text)} is not allowed")
    return address


def _parse_ip(text: str) -> Ip:
    return Ip(_parse_address(text))


def _parse_cidr(text: str) -> Cidr:
    address_text, slash, bits_text = text.rpartition("/")
    try:
        address = _parse_address(address_text)
    except EvaluationFailure as failure:
        raise EvaluationFailure(f"network address parse error during conversion from string: {failure}") from None
    bits = int(bits_text) if re.fullmatch(r"0|[1-9]\d{0,2}", bits_text, re.ASCII) else -1
    if not slash or not 0 <= bits <= address.max_prefixlen:
        raise EvaluationFailure(
            "network address parse error during conversion from string: "
            "network address parse error during conversion from string: "
            f"netip.ParsePrefix({quote(text[:100])}): prefix length out of range"
        )
    return Cidr(address, bits)


def _is_global_unicast(a: Ip) -> bool:
    address = a.address
    if isinstance(address, ipaddress.IPv4Address) and int(address) in (0, 2**32 - 1):
        return False
    return not (address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local)


def _is_link_local_multicast(a: Ip) -> bool:
    if isinstance(a.address, ipaddress.IPv4Address):
        return a.address in ipaddress.IPv4Network("224.0.0.0/24")
    return a.address.packed[0] == 0xFF and a.address.packed[1] & 0x0F == 0x02


def _contains_ip(network: Cidr, address: Ip) -> bool:
    return address.address.version == network.address.version and address.address in network.network


def _contains_cidr(network: Cidr, other: Cidr) -> bool:
    return network.bits <= other.bits and _contains_ip(network, Ip(other.address))


def _mask_network(network: Cidr) -> Cidr:
    return Cidr(network.network.network_address, network.bits)


def _is_canonical(text: str) -> bool:
    return str(_parse_address(text)) == text


def _declare_addresses() -> None:
    _register("ip", "net.IP", "opaque", Ip)
    _register("cidr", "net.CIDR", "opaque", Cidr)
    declare("string_to_ip", "ip(string): ip", _parse_ip)
    declare("is_ip", "isIP(string): bool", _is_valid(_parse_ip))
    declare("ip_is_canonical", "ip.isCanonical(string): bool", _is_canonical)
    declare("ip_family", ":ip:family(): int", lambda a: a.address.version)
    declare("ip_is_unspecified", ":ip:isUnspecified(): bool", lambda a: a.address.is_unspecified)
    declare("ip_is_loopback", ":ip:isLoopback(): bool", lambda a: a.address.is_loopback)
    declare("ip_is_link_local_multicast", ":ip:isLinkLocalMulticast(): bool", _is_link_local_multicast)
    declare("ip_is_link_local_unicast", ":ip:isLinkLocalUnicast(): bool", lambda a: a.address.is_link_local)
    declare("ip_is_global_unicast", ":ip:isGlobalUnicast(): bool", _is_global_unicast)
    declare("ip_to_string", "string(ip): string", lambda a: str(a.address))
    declare("string_to_cidr", "cidr(string): cidr", _parse_cidr)
    declare("is_cidr", "isCIDR(string): bool", _is_valid(_parse_cidr))
    declare("cidr_contains_ip_string", ":cidr:containsIP(string): bool", lambda a, b: _contains_ip(a, _parse_ip(b)))
    declare("cidr_contains_ip_ip", ":cidr:containsIP(ip): bool", _contains_ip)
    declare("cidr_contains_cidr_string", ":cidr:containsCIDR(string): bool", lambda a, b: _contains_cidr(a, _parse_cidr(b)))
    declare("cidr_contains_cidr", ":cidr:containsCIDR(cidr): bool", _contains_cidr)
    declare("cidr_ip", ":cidr:ip(): ip", lambda a: Ip(a.address))
    declare("cidr_prefix_length", ":cidr:prefixLength(): int", lambda a: a.bits)
    declare("cidr_masked", ":cidr:masked(): cidr", _mask_network)
    declare("cidr_to_string", "string(cidr): string", lambda a: f"{a.address}/{a.bits}")


# Semantic versions


@dataclass(frozen=True, slots=True)
class Semver:
    numbers: tuple[int, int, int]
    pre: tuple[str, ...]
    build: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self.order() == other.order()

    def __hash__(self) -> int:
        return hash(self.order())

    def order(self) -> tuple[Any, ...]:
        """Return a key of the order of versions: a release follows its pre-releases, numbers precede texts."""
        parts = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in self.pre)
        return self.numbers, not self.pre, parts


def _parse_semver(text: str, normalize: bool = False) -> Semver:
    if normalize:
        text = _normalize_version(text)
    match = _SEMVER.fullmatch(text) if len(text) <= 256 else None
    if match is None:
        raise EvaluationFailure(
            "No Major.Minor.Patch elements found"
            if text.count(".") < 2
            else f"Invalid character(s) found in version {quote(text[:100])}"
        )
    major, minor, patch, pre, build = match.groups()
    parts = tuple(pre.split(".")) if pre else ()
    if any(part.isdigit() and len(part) > 1 and part.startswith("0") for part in parts):
        raise EvaluationFailure(f"Numeric PreRelease version must not contain leading zeroes {quote(pre)}")
    return Semver((int(major), int(minor), int(patch)), parts, build or "")


def _normalize_version(text: str) -> str:
    parts = text.removeprefix("v").split(".", 2)
    for index, part in enumerate(parts):
        if len(part) > 1:
            stripped = part.lstrip("0")
            parts[index] = stripped if stripped[:1].isdigit() else f"0{stripped}"
    if len(parts) < 3 and re.search(r"[-+]", parts[-1]):
        raise EvaluationFailure("short version cannot contain PreRelease/Build meta data")
    return ".".join(parts + ["0"] * (3 - len(parts)))


def _declare_versions() -> None:
    _register("semver", "kubernetes.Semver", "struct", Semver)
    declare("string_to_semver", "semver(string): semver", _parse_semver)
    declare("string_bool_to_semver", "semver(string, bool): semver", _parse_semver)
    declare("is_semver_string", "isSemver(string): bool", _is_valid(_parse_semver))
    declare("is_semver_string_bool", "isSemver(string, bool): bool", _is_valid(_parse_semver))
    declare("semver_is_greater_than", ":semver:isGreaterThan(semver): bool", lambda a, b: a.order() > b.order())
    declare("semver_is_less_than", ":semver:isLessThan(semver): bool", lambda a, b: a.order() < b.order())
    declare("semver_compare_to", ":semver:compareTo(semver): int", lambda a, b: _compare(a.order(), b.order()))
    for index, name in enumerate(("major", "minor", "patch")):
        declare(f"semver_{name}", f":semver:{name}(): int", lambda a, index=index: a.numbers[index])


# Named formats


@dataclass(frozen=True, slots=True)
class NamedFormat:
    name: str
    check: Callable[[str], tuple[str, ...]]


def _check_label_1035(text: str) -> tuple[str, ...]:
    errors = [f"must be no more than {names.MAX_LABEL} bytes"] if len(text) > names.MAX_LABEL else []
    if not _LABEL_1035.fullmatch(text):
        errors.append(_LABEL_1035_RULE)
    return tuple(errors)


def _as_prefix(check: Callable[[str], tuple[str, ...]]) -> Callable[[str], tuple[str, ...]]:
    """A prefix of a name may end in a dash."""
    return lambda text: check(f"{text[:-1]}a" if len(text) > 1 and text.endswith("-") else text)


def _check_uri(text: str) -> tuple[str, ...]:
    try:
        _parse_url(text)
    except EvaluationFailure as failure:
        return (str(failure).removeprefix("URL parse error during conversion from string: "),)
    return ()


def _check_byte(text: str) -> tuple[str, ...]:
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        return ("invalid base64",)
    return ()


def _check_time(suffix: str, message: str) -> Callable[[str], tuple[str, ...]]:
    return lambda text: () if _is_valid(parse_timestamp)(text + suffix) else (message,)


_FORMATS = {
    "dns1123Label": NamedFormat("DNS1123Label", names.dns_label),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", names.dns_subdomain),
    "dns1035Label": NamedFormat("DNS1035Label", _check_label_1035),
    "qualifiedName": NamedFormat("QualifiedName", names.label_key),
    "portName": NamedFormat("PortName", names.port_name),
    "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", _as_prefix(names.dns_label)),
    "dns1123SubdomainPrefix": NamedFormat("DNS1123SubdomainPrefix", _as_prefix(names.dns_subdomain)),
    "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", _as_prefix(_check_label_1035)),
    "labelValue": NamedFormat("LabelValue", names.label_value),
    "uri": NamedFormat("URI", _check_uri),
    "uuid": NamedFormat("uuid", lambda text: () if _UUID.fullmatch(text) else ("does not match the UUID format",)),
    "byte": NamedFormat("byte", _check_byte),
    "date": NamedFormat("date", _check_time("T00:00:00Z", "invalid date")),
    "datetime": NamedFormat("datetime", _check_time("", "invalid datetime")),
}


def _validate(form: NamedFormat, text: str) -> Optional:
    errors = form.check(text)
    return Optional(list(errors)) if errors else ABSENT


def _named_format(name: str) -> Optional:
    return Optional(_FORMATS[name]) if name in _FORMATS else ABSENT


def _declare_formats() -> None:
    _register("format", "kubernetes.NamedFormat", "struct", NamedFormat)
    declare("format-named", "format.named(string): optional_type(format)", _named_format)
    declare("format-validate", ":format:validate(string): optional_type(list(string))", _validate)
    for name, form in _FORMATS.items():
        declare(f"format.{name}", f"format.{name}(): format", lambda form=form: form)


def _declare_patterns() -> None:
    declare("string_find_string", ":string:find(string): string", find_pattern, takes_meter=True)
    declare("string_find_all_string", ":string:findAll(string): list(string)", find_all_patterns, takes_meter=True)
    declare("string_find_all_string_int", ":string:findAll(string, int): list(string)", find_all_patterns, takes_meter=True)


# The authorizer


class Authorizer(Protocol):
    """Answers what a user may do. The caller of the evaluation gives it."""

    def check(self, question: "AccessQuestion") -> "Decision":
        """Decide. An error is a part of the decision."""
        ...


@dataclass(frozen=True, slots=True)
class AccessQuestion:
    """What a rule asks the authorizer. `path` is set for a request that names no resource. `service_account`: namespace and
    name, or None for the user of the request."""

    verb: str = ""
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: str = ""
    label_selector: str = ""
    service_account: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    allowed: bool
    reason: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class AuthorizerValue:
    """The value of the variable `authorizer`."""

    authorizer: Authorizer
    question: AccessQuestion = AccessQuestion()


class _PathCheck(AuthorizerValue):
    __slots__ = ()


class _GroupCheck(AuthorizerValue):
    __slots__ = ()


class ResourceCheck(AuthorizerValue):
    """The value of the variable `authorizer.requestResource`, and of what `resource()` returns."""

    __slots__ = ()


def _ask_path(a: AuthorizerValue, path: str) -> _PathCheck:
    if not path.strip():
        raise EvaluationFailure("path must not be empty")
    return _PathCheck(a.authorizer, replace(a.question, path=path))


def _ask_resource(a: AuthorizerValue, resource: str) -> ResourceCheck:
    if not resource.strip():
        raise EvaluationFailure("resource must not be empty")
    return ResourceCheck(a.authorizer, replace(a.question, resource=resource))


def _ask_as_account(a: AuthorizerValue, namespace: str, name: str) -> AuthorizerValue:
    for text, errors, what in ((name, names.dns_subdomain(name), "name"), (namespace, names.dns_label(namespace), "namespace")):
        if errors:
            raise EvaluationFailure(f"Invalid service account {what} {quote(text)}")
    return AuthorizerValue(a.authorizer, replace(a.question, service_account=(namespace, name)))


def _check_narrower(field: str) -> Callable[[AuthorizerValue, str], ResourceCheck]:
    def narrow(a: AuthorizerValue, value: str) -> ResourceCheck:
        changed: dict[str, Any] = {field: value}
        return ResourceCheck(a.authorizer, replace(a.question, **changed))

    return narrow


def _decide_access(a: AuthorizerValue, verb: str) -> Decision:
    return a.authorizer.check(replace(a.question, verb=verb))


def _declare_authorizer() -> None:
    prefix = "kubernetes.authorization"
    for short, name, value_class in (
        ("authorizer", "Authorizer", AuthorizerValue), ("pathcheck", "PathCheck", _PathCheck),
        ("groupcheck", "GroupCheck", _GroupCheck),
        ("resourcecheck", "ResourceCheck", ResourceCheck), ("decision", "Decision", Decision),
    ):  # fmt: skip
        _register(short, f"{prefix}.{name}", "struct", value_class)
    declare("authorizer_path", ":authorizer:path(string): pathcheck", _ask_path)
    declare(
        "authorizer_group",
        ":authorizer:group(string): groupcheck",
        lambda a, b: _GroupCheck(a.authorizer, replace(a.question, group=b)),
    )
    declare("authorizer_serviceaccount", ":authorizer:serviceAccount(string, string): authorizer", _ask_as_account)
    declare("groupcheck_resource", ":groupcheck:resource(string): resourcecheck", _ask_resource)
    for name, field in (
        ("subresource", "subresource"), ("namespace", "namespace"), ("name", "name"), ("fieldSelector", "field_selector"),
        ("labelSelector", "label_selector"),
    ):  # fmt: skip
        declare(f"resourcecheck_{name}", f":resourcecheck:{name}(string): resourcecheck", _check_narrower(field))
    declare("pathcheck_check", ":pathcheck:check(string): decision", _decide_access)
    declare("resourcecheck_check", ":resourcecheck:check(string): decision", _decide_access)
    declare("decision_errored", ":decision:errored(): bool", lambda a: bool(a.error))
    declare("decision_error", ":decision:error(): string", lambda a: a.error)
    declare("decision_allowed", ":decision:allowed(): bool", lambda a: a.allowed)
    declare("decision_reason", ":decision:reason(): string", lambda a: a.reason)


def _escape_key(text: str) -> str:
    return text.replace("~", "~0").replace("/", "~1")


@lru_cache(maxsize=1)
def load_libraries() -> None:
    """Declare the functions of all libraries. Call it before an expression is checked."""
    _declare_quantities()
    _declare_urls()
    _declare_addresses()
    _declare_versions()
    _declare_formats()
    _declare_patterns()
    _declare_authorizer()
    declare("jsonpatch_escape_key_string", "jsonpatch.escapeKey(string): string", _escape_key)


load_libraries()
