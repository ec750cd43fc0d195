"""Amounts that are a number or a percentage of something. Pure."""

from pinnace.api.intstr_v1_pb2 import IntOrString
from pinnace.api.scalars import STRING


def amount(bound: IntOrString, total: int, *, up: bool) -> int:
    """`up`: fractions are rounded up, else down. What is no number (validation lets none through) is 0."""
    if bound.type != STRING:
        return bound.intVal
    digits = bound.strVal.removesuffix("%")
    if not digits.isdecimal():
        return 0
    share = int(digits.lstrip("0") or "0") * total  # validation lets any number of zeros through, Python does not
    return -(-share // 100) if up else share // 100
