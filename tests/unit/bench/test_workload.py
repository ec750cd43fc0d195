from pinnace.api.quantity import amounts
from pinnace.verification.bench import load


def test_node_fits_pods_per_node() -> None:
    requests = amounts(load.build_pod("a").spec.containers[0].resources.requests)
    by_cpu, by_memory, by_count = 4000 // requests["cpu"], (32 << 30) // requests["memory"], 110
    assert min(by_cpu, by_memory, by_count) == load.PODS_PER_NODE
