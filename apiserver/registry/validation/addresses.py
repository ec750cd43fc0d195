"""IP addresses, networks and ports."""

import ipaddress
import re
import socket
from contextlib import suppress
from functools import lru_cache

from apiserver.registry.validation.violations import between, invalid
from pinnace.api import names
from pinnace.api.intstr_v1_pb2 import IntOrString
from pinnace.api.scalars import STRING
from pinnace.api.status import Violation

MAX_PORT = 65535
MAX_IP = 45
"""Characters of the longest address: IPv6 that ends like IPv4."""
MAX_NETWORK = MAX_IP + len("/128")
_NETWORK = re.compile(r"[0-9A-Fa-f:.]+/[0-9]+")
"""What ipaddress takes beside it, others do not: masks, addresses without a length, and zones."""

_LINK_LOCAL_MULTICAST = (ipaddress.ip_network("224.0.0.0/24"), ipaddress.ip_network("ff02::/16"))


def validate_ip(text: str, path: str, out: list[Violation]) -> None:
    if not is_ip(text):
        out.append(invalid(path, text, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"))


def is_ip(text: str) -> bool:
    return len(text) <= MAX_IP and _is_ip(text)


@lru_cache(maxsize=4096)
def _is_ip(text: str) -> bool:
    """Remembered: a pod says its address twice, and those of its node are everybody's."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError, ValueError):
            socket.inet_pton(family, text)
            return True
    return False


def validate_external_ip(text: str, path: str, out: list[Violation]) -> None:
    """An address by which others can reach something: none that means another machine to everybody."""
    found: list[Violation] = []
    validate_ip(text, path, found)
    out.extend(found)
    if found:
        return
    address = ipaddress.ip_address(text)
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_unspecified:
        out.append(invalid(path, text, f"may not be unspecified ({text})"))
    if address.is_loopback:
        out.append(invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)"))
    if address.is_link_local:
        out.append(invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"))
    if any(address in network for network in _LINK_LOCAL_MULTICAST):
        out.append(invalid(path, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"))


def validate_network(text: str, path: str, out: list[Violation]) -> int:
    """Which version of IP it is of; 0: it is none."""
    try:
        if len(text) > MAX_NETWORK or not _NETWORK.fullmatch(text):
            raise ValueError
        return ipaddress.ip_network(text, strict=False).version
    except ValueError:
        out.append(invalid(path, text, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"))
        return 0


def validate_port(port: int, path: str, out: list[Violation]) -> None:
    if not 1 <= port <= MAX_PORT:
        out.append(invalid(path, port, between(1, MAX_PORT)))


def validate_port_or_name(port: IntOrString, path: str, out: list[Violation]) -> None:
    if port.type == STRING:
        out.extend(invalid(path, port.strVal, problem) for problem in names.port_name(port.strVal))
    else:
        validate_port(port.intVal, path, out)
