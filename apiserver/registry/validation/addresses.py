"""IP addresses and ports."""

import socket

from apiserver.registry.validation.violations import between, invalid
from pinnace.api import names
from pinnace.api.intstr_v1_pb2 import IntOrString
from pinnace.api.scalars import STRING
from pinnace.api.status import Violation

MAX_PORT = 65535


def validate_ip(text: str, path: str, out: list[Violation]) -> None:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, text)
        except (OSError, ValueError):
            continue
        return
    out.append(invalid(path, text, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"))


def validate_port(port: int, path: str, out: list[Violation]) -> None:
    if not 1 <= port <= MAX_PORT:
        out.append(invalid(path, port, between(1, MAX_PORT)))


def validate_port_or_name(port: IntOrString, path: str, out: list[Violation]) -> None:
    if port.type == STRING:
        out.extend(invalid(path, port.strVal, problem) for problem in names.port_name(port.strVal))
    else:
        validate_port(port.intVal, path, out)
