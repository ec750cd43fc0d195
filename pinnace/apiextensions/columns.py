"""Printer columns of custom resources: the tables of `kubectl get`.

Source: k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor of Kubernetes 1.36.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Column:
    """`definition`: as in columnDefinitions of a Table."""

    definition: Mapping[str, Any]
    path: str


def columns_of(version: Mapping[str, Any]) -> tuple[Column, ...]:
    """Return the columns of a version of a definition (an element of spec.versions), without Name. Age if it has none."""
    raise NotImplementedError


def cells(columns: Sequence[Column], obj: Mapping[str, Any], now: float) -> list[Any]:
    """Return the cells of an object, without its name. Dates are ages at `now` (Unix time in seconds), as Kubernetes'
    tables have."""
    raise NotImplementedError
