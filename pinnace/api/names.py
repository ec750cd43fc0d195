"""Validation of names, labels and keys as in Kubernetes, and sets of node names.

Each validator returns the problems of a text in Kubernetes' wording, or an empty tuple. Validators of recurring texts (labels,
taints, names of containers) are cached. Texts that are too long are not cached, which bounds the memory. Object names do not
recur and are not cached.

Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/ and .../labels/
"""

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

OK: tuple[str, ...] = ()

MAX_LABEL = 63
MAX_SUBDOMAIN = 253
MAX_KEY = MAX_SUBDOMAIN + 1 + MAX_LABEL
MAX_PORT_NAME = 15
NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Characters for generated names, without vowels and similar-looking characters, as in Kubernetes."""

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_1035_LABEL = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_SEARCH_LABEL = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SEARCH = rf"{_SEARCH_LABEL}(\.{_SEARCH_LABEL})*"
_KEY = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_KEY})?"
_CONFIG_KEY = r"[-._a-zA-Z0-9]+"
_HEADER = r"[-A-Za-z0-9]+"

_match_label = re.compile(_LABEL).fullmatch
_match_1035_label = re.compile(_1035_LABEL).fullmatch
_match_subdomain = re.compile(_SUBDOMAIN).fullmatch
_match_search = re.compile(_SEARCH).fullmatch
_match_key = re.compile(_KEY).fullmatch
_match_value = re.compile(_VALUE).fullmatch
_match_config_key = re.compile(_CONFIG_KEY).fullmatch
_match_header = re.compile(_HEADER).fullmatch
_match_port = re.compile(r"[-a-z0-9]+").fullmatch
_match_env = re.compile(r"[ -<>-~]+").fullmatch

_RULE = "must start and end with an alphanumeric character"
_LABEL_RULE = f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and {_RULE}"
_1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character"
)
_SUBDOMAIN_RULE = f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and {_RULE}"
_WILDCARD = rf"\*\.{_SUBDOMAIN}"
_WILDCARD_RULE = (
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case "
    "alphanumeric characters, '-' or '.' and end with an alphanumeric character"
)
_SEARCH_RULE = _SUBDOMAIN_RULE.replace("characters, '-'", "characters, '_', '-'")
_KEY_RULE = f"must consist of alphanumeric characters, '-', '_' or '.', and {_RULE}"
_VALUE_RULE = f"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and {_RULE}"
_RANGE = re.compile(r"(?P<prefix>.*?)(?P<first>\d{1,9})\.\.(?P<last>\d{1,9})", re.ASCII)
_NUMBER = re.compile(r"0|[1-9]\d{0,8}", re.ASCII)
_UUID_MASK = ~(0xF << 76 | 0x3 << 62)
_UUID_VERSION = 0x4 << 76 | 0x2 << 62


def _pattern_message(rule: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{rule} (e.g. {shown}regex used for validation is '{pattern}')"


_NO_LABEL = (_pattern_message(_LABEL_RULE, _LABEL, "my-name", "123-abc"),)
_NO_1035_LABEL = _pattern_message(_1035_RULE, _1035_LABEL, "my-name", "abc-123")
_NO_SUBDOMAIN = (_pattern_message(_SUBDOMAIN_RULE, _SUBDOMAIN, "example.com"),)
_NO_WILDCARD = (_pattern_message(_WILDCARD_RULE, _WILDCARD, "*.example.com"),)
_NO_SEARCH = (_pattern_message(_SEARCH_RULE, _SEARCH, "example.com"),)
_NO_KEY = _pattern_message(_KEY_RULE, _KEY, "MyName", "my.name", "123-abc")
_NO_VALUE = (_pattern_message(_VALUE_RULE, _VALUE, "MyValue", "my_value", "12345"),)


def dns_subdomain(text: str) -> tuple[str, ...]:
    """Validate the name of most objects: "web-0", "node.example.com"."""
    if len(text) > MAX_SUBDOMAIN:
        return (f"must be no more than {MAX_SUBDOMAIN} characters",)
    return OK if _match_subdomain(text) else _NO_SUBDOMAIN


def wildcard_dns_subdomain(text: str) -> tuple[str, ...]:
    """Validate a host whose first label is "*": "*.example.com"."""
    if len(text) > MAX_SUBDOMAIN:
        return (f"must be no more than {MAX_SUBDOMAIN} characters",)
    return OK if text.startswith("*.") and _match_subdomain(text[2:]) else _NO_WILDCARD


def domain(text: str) -> tuple[str, ...]:
    """Validate a DNS domain, which can end with the dot of the root: "example.com", "example.com."."""
    name = text.removesuffix(".")
    if problems := dns_subdomain(name):
        return problems
    segments = name.split(".")
    if len(segments) < 2:
        return ("should be a domain with at least two segments separated by dots",)
    return next(filter(None, map(dns_label, segments)), OK)


def search_domain(text: str) -> tuple[str, ...]:
    """Validate a search domain of a pod's resolver: "svc.example.com", "_tcp.example.com", or "." for the root."""
    name = text.removesuffix(".")
    if len(name) > MAX_SUBDOMAIN:
        return (f"must be no more than {MAX_SUBDOMAIN} characters",)
    return OK if text == "." or _match_search(name) else _NO_SEARCH


def dns_label(text: str) -> tuple[str, ...]:
    """Validate the name of a namespace, service, container or volume: at most 63 characters without dots."""
    return _dns_label(text) if len(text) <= MAX_LABEL else (f"must be no more than {MAX_LABEL} characters",)


@lru_cache(maxsize=1024)
def _dns_label(text: str) -> tuple[str, ...]:
    if _match_label(text):
        return OK
    return ("must not contain dots",) if _match_subdomain(text) else _NO_LABEL


def dns_1035_label(text: str) -> tuple[str, ...]:
    """Validate the name of a service, or of a kind, version or resource: a label that begins with a letter."""
    too_long = (f"must be no more than {MAX_LABEL} characters",) if len(text) > MAX_LABEL else OK
    return too_long if _match_1035_label(text) else (*too_long, _NO_1035_LABEL)


def path_segment(text: str) -> tuple[str, ...]:
    """Validate the name of a role or binding, which must be usable as a path segment: "system:node", "Ada Lovelace".

    The maximum length is specific to pinnace, because a continue token contains the key. Kubernetes has no maximum.
    """
    if len(text) > MAX_SUBDOMAIN:
        return (f"must be no more than {MAX_SUBDOMAIN} characters",)
    if text in (".", ".."):
        return (f"may not be '{text}'",)
    return tuple(f"may not contain '{sign}'" for sign in "/%" if sign in text)


def label_key(text: str) -> tuple[str, ...]:
    """Validate a qualified name: a key of labels, annotations or taints, or a resource: "app", "example.com/gpu"."""
    return _label_key(text) if len(text) <= MAX_KEY else (f"must be no more than {MAX_KEY} bytes",)


@lru_cache(maxsize=4096)
def _label_key(text: str) -> tuple[str, ...]:
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        return (f"a valid label key {_NO_KEY} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",)
    problems: list[str] = []
    if slash:
        problems += ["prefix part " + item for item in (dns_subdomain(prefix) if prefix else ("must be non-empty",))]
    if not name:
        problems.append("name part must be non-empty")
    elif len(name) > MAX_LABEL:
        problems.append(f"name part must be no more than {MAX_LABEL} bytes")
    elif not _match_key(name):
        problems.append("name part " + _NO_KEY)
    return tuple(problems)


def is_native_resource(name: str) -> bool:
    """Return whether the resource is defined by Kubernetes."""
    return "/" not in name or "kubernetes.io/" in name


def is_extended_resource(name: str) -> bool:
    """Return whether the resource is an extended resource, such as example.com/gpu."""
    return not is_native_resource(name) and not name.startswith("requests.") and not label_key("requests." + name)


def label_value(text: str) -> tuple[str, ...]:
    return _label_value(text) if len(text) <= MAX_LABEL else (f"must be no more than {MAX_LABEL} bytes",)


@lru_cache(maxsize=4096)
def _label_value(text: str) -> tuple[str, ...]:
    return OK if _match_value(text) else _NO_VALUE


def port_name(text: str) -> tuple[str, ...]:
    """Validate the name of a container port (an IANA service name): "http", "metrics-2"."""
    return _port_name(text) if len(text) <= MAX_PORT_NAME else (f"must be no more than {MAX_PORT_NAME} characters",)


@lru_cache(maxsize=1024)
def _port_name(text: str) -> tuple[str, ...]:
    problems: list[str] = []
    if not _match_port(text):
        problems.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not any("a" <= letter <= "z" for letter in text):
        problems.append("must contain at least one letter (a-z)")
    if "--" in text:
        problems.append("must not contain consecutive hyphens")
    if text.startswith("-") or text.endswith("-"):
        problems.append("must not begin or end with a hyphen")
    return tuple(problems)


def env_name(text: str) -> tuple[str, ...]:
    """Validate the name of an environment variable."""
    if _match_env(text):
        return OK
    return ("a valid environment variable name must consist only of printable ASCII characters other than '='",)


def config_key(text: str) -> tuple[str, ...]:
    """Validate a key of a ConfigMap or Secret."""
    if len(text) > MAX_SUBDOMAIN:
        return (f"must be no more than {MAX_SUBDOMAIN} characters",)
    if text in (".", ".."):
        return (f"must not be '{text}'",)
    if text.startswith(".."):
        return ("must not start with '..'",)
    if _match_config_key(text):
        return OK
    rule = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
    return (_pattern_message(rule, _CONFIG_KEY, "key.name", "KEY_NAME", "key-name"),)


def http_header(text: str) -> tuple[str, ...]:
    """Validate the name of an HTTP header of a probe."""
    if _match_header(text):
        return OK
    return (_pattern_message("a valid HTTP header must consist of alphanumeric characters or '-'", _HEADER, "X-Header-Name"),)


def complete_generate_name(text: str) -> str:
    """Return a generateName prefix as a complete name for validation. A trailing dash will be followed by a suffix."""
    return text[:-1] + "a" if len(text) > 1 and text.endswith("-") else text


@dataclass(frozen=True)
class NodeNames:
    """A set of node names, tested with `name in names`. `patterns`: the source patterns. Created by `parse`."""

    patterns: tuple[str, ...] = ()
    _exact: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    _prefixes: tuple[str, ...] = field(default=(), compare=False, repr=False)
    _ranges: tuple[tuple[str, int, int], ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def parse(cls, patterns: Iterable[str]) -> "NodeNames":
        """Parse names, ranges and prefixes. Raises ValueError for an invalid pattern."""
        exact, prefixes, ranges = set[str](), list[str](), list[tuple[str, int, int]]()
        patterns = tuple(patterns)
        for pattern in patterns:
            if match := _RANGE.fullmatch(pattern):
                ranges.append((match["prefix"], int(match["first"]), int(match["last"])))
            elif pattern.endswith("*"):
                prefixes.append(pattern.removesuffix("*"))
            else:
                exact.add(pattern)
        samples = [*exact, *(f"{prefix}0" for prefix in prefixes), *(f"{prefix}{last}" for prefix, _, last in ranges)]
        for sample in samples:
            if problems := dns_subdomain(sample):
                raise ValueError(f'invalid node name "{sample[:64]}": {problems[0]}; examples: n7, node-0..99, kubelet-*')
        return cls(patterns, frozenset(exact), tuple(prefixes), tuple(ranges))

    def __contains__(self, name: str) -> bool:
        return (
            name in self._exact
            or name.startswith(self._prefixes)
            or any(_is_numbered_within(name, *range_) for range_ in self._ranges)
        )


def _is_numbered_within(name: str, prefix: str, first: int, last: int) -> bool:
    number = name.removeprefix(prefix) if name.startswith(prefix) else ""
    return _NUMBER.fullmatch(number) is not None and first <= int(number) <= last


def new_uid(rng: random.Random) -> str:
    """Return a UUID of version 4 from a random generator. It is five times as fast as uuid.uuid4."""
    digits = f"{rng.getrandbits(128) & _UUID_MASK | _UUID_VERSION:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
