"""The tables of ingresses, ingress classes and network policies, as a kube-apiserver 1.36 prints them."""

from typing import Any

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.resources import INGRESS_CLASSES, INGRESSES, NETWORK_POLICIES, Resource
from pinnace.printers import COLUMNS

META = {"name": "a", "creationTimestamp": "1970-01-01T02:46:35Z"}


@pytest.mark.parametrize(
    ("resource", "data", "cells"),
    [
        (INGRESSES, {}, ["a", "<none>", "*", "", "80", "5s"]),
        (
            INGRESSES,
            {
                "spec": {
                    "ingressClassName": "edge",
                    "tls": [{}],
                    "rules": [{"host": host} for host in ("a", "b", "a", "c", "d")],
                },
                "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"hostname": "x.example"}]}},
            },
            ["a", "edge", "a,b,c + 1 more...", "192.0.2.1,x.example", "80, 443", "5s"],
        ),
        (INGRESS_CLASSES, {"spec": {"controller": "x/y"}}, ["a", "x/y", "<none>", "5s"]),
        (
            INGRESS_CLASSES,
            {
                "metadata": META | {"annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}},
                "spec": {"controller": "x/y", "parameters": {"apiGroup": "example.com", "kind": "Edge", "name": "main"}},
            },
            ["a (default)", "x/y", "Edge.example.com/main", "5s"],
        ),
        (NETWORK_POLICIES, {"spec": {"podSelector": {}}}, ["a", "<none>", "5s"]),
        (NETWORK_POLICIES, {"spec": {"podSelector": {"matchLabels": {"app": "web"}}}}, ["a", "app=web", "5s"]),
    ],
)
def test_row(resource: Resource[Any], data: dict[str, Any], cells: list[str]) -> None:
    assert list(COLUMNS[resource.plural].row(from_dict(resource, {"metadata": META} | data), 10_000.0)) == cells
