from hypothesis import given
from hypothesis import strategies as st

from apiserver.cacher.projection import node_of
from pinnace.api import wire
from pinnace.api.core_v1_pb2 import Pod
from tests.builders import make_pod


def test_a_pod_without_a_spec_is_on_no_node() -> None:
    assert node_of(b"") == ""
    assert node_of(Pod().SerializeToString()) == ""


@given(st.text(max_size=20), st.integers(0, 5), st.booleans())
def test_it_reads_what_the_whole_pod_says(node: str, containers: int, stamped: bool) -> None:
    builder = make_pod("a").label("spec.nodeName", "not-this").node(node)
    for _ in range(containers):
        builder.req(cpu="100m", memory="1Gi")
    value = builder.build().SerializeToString() + (wire.stamp(812) if stamped else b"")
    assert node_of(value) == Pod.FromString(value).spec.nodeName == node
