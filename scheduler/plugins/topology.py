"""Sums over topology domains: all the nodes that have the same value of a label, the topology key."""

from collections.abc import Iterable

import numpy as np

from scheduler.cache.columns import Coded
from scheduler.cache.pod_index import Selection
from scheduler.cache.pod_terms import Term
from scheduler.framework import BoolArray, FloatArray, NodeTable

Weighted = tuple[str, Selection | Term, float]
"""A topology key; the pods that are counted on each node; what their number is multiplied with."""


def per_domain(numbers: FloatArray, labels: Coded[str | None]) -> FloatArray:
    """For each node, the sum over its domain; 0 for a node without the label."""
    return domain_sums(numbers, labels)[labels.codes]


def domain_sums(numbers: FloatArray | BoolArray, labels: Coded[str | None]) -> FloatArray:
    """By code of the label; 0 for the nodes without."""
    sums = np.bincount(labels.codes, numbers, minlength=1).astype(np.float64, copy=False)
    sums[0] = 0
    return sums


def weighted_sum(nodes: NodeTable, items: Iterable[Weighted]) -> FloatArray:
    """For each node, the sum of the items' sums over its domain in their topology."""
    by_key: dict[str, list[tuple[Selection | Term, float]]] = {}
    for key, pods, weight in items:
        if nodes.has_label(key):
            by_key.setdefault(key, []).append((pods, weight))
    total: FloatArray = np.zeros(len(nodes))
    for key, wanted in by_key.items():
        total += per_domain(nodes.pods.sum(wanted), nodes.label(key))
    return total
