"""OpenAPI schemas of custom resources, versions 2 and 3, as `kubectl explain` and clients read them.

Source: k8s.io/apiextensions-apiserver/pkg/controller/openapi of Kubernetes 1.36.
"""

from collections.abc import Mapping
from typing import Any


def schema_name(crd: Mapping[str, Any], version: str) -> str:
    """Return the name of the kind's schema: "com.example.v1.Widget"."""
    raise NotImplementedError


def schemas_v3(crd: Mapping[str, Any], version: str) -> dict[str, Any]:
    """Return the schemas of a version by name: those of the kind and of its list. They refer to ObjectMeta and ListMeta by
    "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"."""
    raise NotImplementedError


def schemas_v2(crd: Mapping[str, Any], version: str) -> dict[str, Any]:
    """Return the definitions for swagger 2.0, by name. What version 2 cannot express is left out; references begin with
    "#/definitions/"."""
    raise NotImplementedError
