"""Definitions for tests."""

from typing import Any

from pinnace.apiextensions.definitions import prepare_create, set_definition_defaults

PLURAL, GROUP = "widgets", "example.com"


def make_schema(**properties: Any) -> dict[str, Any]:
    """Return a schema with these properties in its spec."""
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}


def make_version(schema: Any = None, *, name: str = "v1", storage: bool = True, **fields: Any) -> dict[str, Any]:
    props = make_schema() if schema is None else schema
    return {"name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": props}, **fields}


def make_definition(*versions: Any, **spec: Any) -> dict[str, Any]:
    """Return a definition that is ready to be validated. It has one version by default."""
    crd: dict[str, Any] = {
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": PLURAL, "kind": "Widget"},
            "versions": list(versions or [make_version()]),
            **spec,
        },
    }
    set_definition_defaults(crd)
    prepare_create(crd)
    return crd


def establish(crd: dict[str, Any]) -> dict[str, Any]:
    crd["status"]["conditions"] = [{"type": "Established", "status": "True"}]
    return crd
