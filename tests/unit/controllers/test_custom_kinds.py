"""Informers and owners of custom kinds, which come and go with their definitions."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

from pinnace.api.apiextensions_v1_pb2 import CustomResourceDefinition
from pinnace.api.resources import CustomResource
from pinnace.api.verbs_pb2 import ADDED, DELETED, MODIFIED
from pinnace.client.informer import Delta
from pinnace.controllers.informers import CustomInformers


def make_definition(*versions: str, uid: str = "u", established: bool = True) -> CustomResourceDefinition:
    definition = CustomResourceDefinition()
    definition.metadata.name, definition.metadata.uid = "widgets.example.com", uid
    spec = definition.spec
    spec.group, spec.scope, spec.names.plural, spec.names.kind = "example.com", "Namespaced", "widgets", "Widget"
    for number, version in enumerate(versions):
        spec.versions.add(name=version, served=True, storage=not number)
    definition.status.conditions.add(type="Established", status="True" if established else "False")
    return definition


class Kinds:
    """The informers of custom kinds, as a handler sees them: "+v1" opens, "-v1" closes."""

    def __init__(self) -> None:
        self.log: list[str] = []
        informers = SimpleNamespace(open=lambda resource: None, close=lambda resource: {})
        self.custom = CustomInformers(cast(Any, informers))
        self.custom.add_handler(self)

    def handle_added_kind(self, resource: CustomResource) -> None:
        self.log.append(f"+{resource.api_version.rpartition('/')[2]}")

    def handle_removed_kind(self, resource: CustomResource, objects: Iterable[Any]) -> None:
        self.log.append(f"-{resource.api_version.rpartition('/')[2]}")

    def change(self, definition: CustomResourceDefinition, kind: Any = MODIFIED) -> None:
        self.custom.handle_definition_deltas([Delta(kind, definition, None)])


def test_kind_is_watched_while_its_definition_is_established() -> None:
    kinds = Kinds()
    kinds.change(make_definition("v1", established=False), ADDED)
    assert kinds.log == [] and kinds.custom.by_kind("Widget", "example.com/v1") is None
    kinds.change(make_definition("v1"))
    assert kinds.log == ["+v1"] and kinds.custom.by_kind("Widget", "example.com/v1") is not None
    kinds.change(make_definition("v1"), DELETED)
    assert kinds.log == ["+v1", "-v1"] and kinds.custom.resources == []


def test_owner_is_found_in_every_version_of_its_kind() -> None:
    kinds = Kinds()
    kinds.change(make_definition("v1", "v2"))
    first, second = (kinds.custom.by_kind("Widget", f"example.com/{version}") for version in ("v1", "v2"))
    assert first is second is kinds.custom.resources[0]
    assert kinds.custom.by_kind("Widget", "example.com/v3") is None


def test_watch_moves_when_its_version_is_not_served_any_more() -> None:
    kinds = Kinds()
    kinds.change(make_definition("v1", "v2"))
    kinds.change(make_definition("v1", "v2", "v3"))
    assert kinds.log == ["+v1"]
    kinds.change(make_definition("v2", "v3"))
    assert kinds.log == ["+v1", "-v1", "+v2"]


def test_recreated_definition_is_watched_again() -> None:
    kinds = Kinds()
    kinds.change(make_definition("v1"))
    kinds.change(make_definition("v1", uid="other"))
    assert kinds.log == ["+v1", "-v1", "+v1"]
