"""The kubelet and the scheduler say the same of which nodes have the labels that a pod insists on."""

from hypothesis import given
from hypothesis import strategies as st

from pinnace.fit import has_node_requirements, matches_node
from pinnace.scheduler.plugins.node_affinity import matching_nodes
from tests.builders import make_node, make_pod
from tests.unit.scheduler.pods import cache_of

KEYS, VALUES = st.sampled_from(["zone", "size"]), st.sampled_from(["a", "b", "3", "10", "-1"])
requirements = st.tuples(
    KEYS, st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Odd"]), st.lists(VALUES, max_size=2)
)
terms = st.lists(st.lists(requirements, max_size=2), max_size=2)
nodes = st.lists(st.dictionaries(KEYS, VALUES), min_size=1, max_size=3)


@given(st.dictionaries(KEYS, VALUES, max_size=1), terms, st.sampled_from(["", "In", "NotIn"]), nodes)
def test_both_say_the_same(
    selector: dict[str, str], affinity: list[list[tuple[str, str, list[str]]]], field: str, labels: list[dict[str, str]]
) -> None:
    builder = make_pod("a").req()
    for key, value in selector.items():
        builder = builder.node_selector(key, value)
    for term in affinity:
        builder = builder.node_affinity(*term)
    if field:
        builder = builder.node_fields(field, ["n0"])
    built = []
    for number, own in enumerate(labels):
        node = make_node(f"n{number}")
        for key, value in own.items():
            node = node.label(key, value)
        built.append(node)
    spec = builder.build().spec
    table = cache_of(*built).nodes
    expected = matching_nodes(spec, table)
    for node in built:
        result = matches_node(spec, node.build())
        assert result == bool(expected[table.row(node.build().metadata.name)])
        assert result or has_node_requirements(spec)
