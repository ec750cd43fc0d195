import pytest

from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.resources import ALL, ELECTIONS_PREFIX, Resource, election_key, namespace_of, prefix_of, store_key


@pytest.mark.parametrize("resource", ALL, ids=lambda resource: resource.plural)
def test_key_contains_resource_and_namespace(resource: Resource) -> None:
    key = resource.key("default", "a")
    assert prefix_of(key) == prefix_of(resource.prefix) == resource.prefix
    assert not resource.namespaced or namespace_of(key) == "default"


def test_prefix_of_other_keys() -> None:
    assert prefix_of(election_key("scheduler")) == ELECTIONS_PREFIX
    assert prefix_of("/registry/restores") == ""


def test_store_key_of_namespaced_and_cluster_scoped_objects() -> None:
    pod, node = Pod(), Node()
    pod.metadata.namespace, pod.metadata.name, node.metadata.name = "default", "a", "node-0"
    assert (store_key(pod), store_key(node)) == ("default/a", "node-0")
