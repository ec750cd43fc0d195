"""The formats of strings that Kubernetes checks: date-time, uri, ipv4 and others. Other formats are ignored.

Every check is linear in the text.

Source: k8s.io/kube-openapi/pkg/validation/strfmt, and k8s.io/apiextensions-apiserver/pkg/apiserver/validation/formats.go.
"""

import ipaddress
import re
import string
from calendar import monthrange
from collections.abc import Callable, Mapping
from contextlib import suppress

from pinnace.apiextensions.patterns import compile_pattern

MAX_IP = 64
"""Characters of the longest address or network."""
_MAX_HOSTNAME, _MAX_HOST_LABEL = 255, 63
_MAX_DURATION = 10_000
_MAX_DURATION_NS = (1 << 63) - 1
_UNIT_NS = {
    "ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9,
}  # fmt: skip
_SCALA_UNITS = (
    ("ns", "nano"), ("us", "µs", "micro"), ("ms", "milli"), ("s", "sec"), ("m", "min"), ("h", "hr", "hour"), ("d", "day"),
    ("w", "wk", "week"),
)  # fmt: skip
"""The names of a unit. A longer name may begin with the last one."""
_MAX_SCALA_DIGITS = 18
_HEX = r"[0-9a-f]"
_SHORT_NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_COLOR_PART = r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*"
_ATOM = r"[^\s\x00-\x1f\x7f()<>\[\]:;@\\,.\"]+"
_ADDRESS = rf"({_ATOM}(\.{_ATOM})*|\"([^\"\\\r\n]|\\.)*\")@({_ATOM}(\.{_ATOM})*|\[[^\[\]\\\s]*\])"
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_HOST = re.compile(r"([^\x00-\x20#%/?@\\^`{|}\x7f]|%25|%[89A-Fa-f][0-9A-Fa-f])*")
_USER = re.compile(r"[A-Za-z0-9._:~!$&'()*+,;=%@-]*")

_match_scala_part = re.compile(r"([0-9]{1,19})(?![0-9])\s{0,100}([A-Za-zµ]{1,100})").finditer
_match_go_part = re.compile(r"([0-9]*)(\.[0-9]*)?([a-zµμ]+)").match
_match_date = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})").fullmatch
_match_time = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})").fullmatch

Check = Callable[[str], bool]
_NUMBER_FORMATS = {"integer": ("int32", "int64"), "number": ("float", "double")}


def _by_pattern(pattern: str) -> Check:
    """Return a check that compiles the expression when it is first used: that of host names takes 100 ms."""
    return lambda text: compile_pattern(f"^({pattern})$").matches(text)


_match_hostname = _by_pattern(
    r"[a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)"
    r"|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63}"
)
_match_card = _by_pattern(
    r"4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}"
    r"|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11}"
)


def is_date(text: str) -> bool:
    match = _match_date(text)
    if not match or not text.isascii():
        return False
    year, month, day = map(int, match.groups())
    return 1 <= month <= 12 and 1 <= day <= (monthrange(year or 4, month)[1])


def is_date_time(text: str) -> bool:
    parts = text.lower().split("t", 2)
    if len(parts) < 2 or not is_date(parts[0]):
        return False
    match = _match_time(parts[1])
    return match is not None and match[1] <= "23" and match[2] <= "59" and match[3] <= "59"


def is_duration(text: str) -> bool:
    return _is_go_duration(text) or any(map(_is_scala_duration, _match_scala_part(text)))


def _is_go_duration(text: str) -> bool:
    unsigned = text[1:] if text[:1] in ("-", "+") else text
    if unsigned == "0":
        return True
    position, total = 0, 0.0
    while position < len(unsigned):
        match = _match_go_part(unsigned, position)
        if not match or match[3] not in _UNIT_NS or not (match[1] or (match[2] and len(match[2]) > 1)):
            return False
        if len(match[1]) > len(str(_MAX_DURATION_NS)):
            return False
        total += float(f"{match[1] or '0'}{(match[2] or '')[:20]}") * _UNIT_NS[match[3]]
        position = match.end()
    return bool(unsigned) and total <= _MAX_DURATION_NS


def _is_scala_duration(match: re.Match[str]) -> bool:
    unit = match[2].lower()
    return len(match[1]) <= _MAX_SCALA_DIGITS and any(unit in names or unit.startswith(names[-1]) for names in _SCALA_UNITS)


def is_ipv4(text: str) -> bool:
    return "." in text and _is_address(text)


def is_ipv6(text: str) -> bool:
    return ":" in text and _is_address(text)


def _is_address(text: str) -> bool:
    with suppress(ValueError):
        return len(text) <= MAX_IP and "%" not in text and bool(ipaddress.ip_address(_strip_zeros(text)))
    return False


def is_cidr(text: str) -> bool:
    address, _, length = text.partition("/")
    if not _is_address(address) or not (length.isascii() and length.isdigit() and len(length) <= 3):
        return False
    return int(length) <= (128 if ":" in address else 32)


def _strip_zeros(text: str) -> str:
    """Kubernetes accepts leading zeros in IPv4 addresses."""
    if ":" in text:
        return text
    return ".".join(part.lstrip("0") or "0" if part else "" for part in text.split("."))


def is_mac(text: str) -> bool:
    for separator, digits in ((":", 2), ("-", 2), (".", 4)):
        groups = text.split(separator)
        if len(groups) > 1:
            octets = len(groups) * digits // 2
            return octets in (6, 8, 20) and all(
                len(group) == digits and set(group) <= set(string.hexdigits) for group in groups
            )
    return False


def is_hostname(text: str) -> bool:
    if len(text.encode(errors="replace")) > _MAX_HOSTNAME or not _match_hostname(text):
        return False
    return all(len(label.encode(errors="replace")) <= _MAX_HOST_LABEL for label in text.split("."))


def is_uri(text: str) -> bool:
    """Return whether Go's url.ParseRequestURI accepts the text."""
    if not text or any(character < " " or character == "\x7f" for character in text):
        return False
    if text == "*":
        return True
    scheme = _SCHEME.match(text)
    rest = text[scheme.end() :] if scheme else text
    if not scheme and text.startswith(":"):
        return False
    rest = rest.partition("?")[0]
    if not rest.startswith("/"):
        return bool(scheme)
    if scheme and rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        return _is_authority(authority) and not _ESCAPE.search(slash + path)
    return not _ESCAPE.search(rest)


def _is_authority(text: str) -> bool:
    user, at, host = text.rpartition("@")
    if at and (not _USER.fullmatch(user) or _ESCAPE.search(user)):
        return False
    if host.startswith("["):
        address, bracket, port = host.partition("]")
        if not bracket or not _HOST.fullmatch(address[1:]):
            return False
    else:
        name, colon, digits = host.partition(":")
        port = colon + digits
        if not _HOST.fullmatch(name):
            return False
    return not port or (port[0] == ":" and (port == ":" or (port[1:].isascii() and port[1:].isdigit())))


def is_isbn10(text: str) -> bool:
    digits = "".join(text.replace("-", "").split())
    if len(digits) != 10 or not re.fullmatch(r"[0-9]{9}[0-9X]", digits):
        return False
    return sum((index + 1) * (10 if digit == "X" else int(digit)) for index, digit in enumerate(digits)) % 11 == 0


def is_isbn13(text: str) -> bool:
    digits = "".join(text.replace("-", "").split())
    if len(digits) != 13 or not re.fullmatch(r"[0-9]{13}", digits):
        return False
    return sum((1, 3)[index % 2] * int(digit) for index, digit in enumerate(digits)) % 10 == 0


def is_credit_card(text: str) -> bool:
    digits = "".join(character for character in text if character in string.digits)
    if not _match_card(digits):
        return False
    doubled = [int(digit) * (1 + index % 2) for index, digit in enumerate(reversed(digits))]
    return sum(number - 9 if number > 9 else number for number in doubled) % 10 == 0


def _is_uuid(version: str, variant: str = _HEX) -> Check:
    return _by_pattern(rf"(?i){_HEX}{{8}}-?{_HEX}{{4}}-?{version}{_HEX}{{3}}-?{variant}{_HEX}{{3}}-?{_HEX}{{12}}")


def _limit_length(limit: int, check: Check) -> Check:
    return lambda text: len(text) <= limit and check(text)


FORMATS: Mapping[str, Check] = {
    "bsonobjectid": _by_pattern(r"[0-9a-fA-F]{24}"),
    "byte": _by_pattern(r"(?:[A-Za-z0-9+\/]{4})*(?:[A-Za-z0-9+\/]{2}==|[A-Za-z0-9+\/]{3}=|[A-Za-z0-9+\/]{4})"),
    "cidr": is_cidr,
    "creditcard": is_credit_card,
    "date": is_date,
    "datetime": is_date_time,
    "duration": _limit_length(_MAX_DURATION, is_duration),
    "email": _by_pattern(rf"\s*(?:{_ADDRESS}|[^<>]*<{_ADDRESS}>)\s*"),
    "hexcolor": _by_pattern(r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "hostname": is_hostname,
    "ipv4": is_ipv4,
    "ipv6": is_ipv6,
    "isbn": lambda text: is_isbn10(text) or is_isbn13(text),
    "isbn10": is_isbn10,
    "isbn13": is_isbn13,
    "k8slongname": _limit_length(253, _by_pattern(rf"{_SHORT_NAME}(\.{_SHORT_NAME})*")),
    "k8sshortname": _limit_length(63, _by_pattern(_SHORT_NAME)),
    "mac": is_mac,
    "password": lambda _: True,
    "rgbcolor": _by_pattern(rf"rgb\({_COLOR_PART},{_COLOR_PART},{_COLOR_PART}\)"),
    "ssn": _limit_length(11, _by_pattern(r"\d{3}[- ]\d{2}[- ]\d{4}")),
    "uri": is_uri,
    "uuid": _is_uuid(_HEX),
    "uuid3": _is_uuid("3"),
    "uuid4": _is_uuid("4", "[89ab]"),
    "uuid5": _is_uuid("5", "[89ab]"),
}
"""The formats of strings, by their names without dashes."""


def is_recognized(name: str, of_type: str) -> bool:
    """Return whether values of a type ("" for several) are compared with a format."""
    if of_type in ("", "string"):
        return name.replace("-", "") in FORMATS
    return name in _NUMBER_FORMATS.get(of_type, ())


def format_check(name: str) -> Check | None:
    return FORMATS.get(name.replace("-", ""))
