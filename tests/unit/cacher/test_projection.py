from hypothesis import given
from hypothesis import strategies as st

from apiserver.cacher.projection import project
from pinnace.api import wire
from pinnace.api.core_v1_pb2 import Pod
from tests.builders import make_pod


def test_a_pod_without_a_spec_is_on_no_node_and_in_no_phase() -> None:
    assert project(b"") == ("", "")
    assert project(Pod().SerializeToString()) == ("", "")


@given(st.text(max_size=20), st.text(max_size=20), st.integers(0, 5), st.booleans())
def test_it_reads_what_the_whole_pod_says(node: str, phase: str, containers: int, stamped: bool) -> None:
    builder = make_pod("a").label("spec.nodeName", "not-this").node(node)
    for _ in range(containers):
        builder.req(cpu="100m", memory="1Gi")
    pod = builder.build()
    pod.status.phase = phase
    value = pod.SerializeToString() + (wire.stamp(812) if stamped else b"")
    assert project(value) == (node, phase)
    whole = Pod.FromString(value)
    assert project(value) == (whole.spec.nodeName, whole.status.phase)
