"""Benchmarks on real clusters. Each benchmark starts its own cluster, and a witness checks the results.

throughput.py, failover.py, watch.py, flood.py, node_loss.py and scale.py implement the rows. calibration.py starts the cluster,
load.py creates pods, witness.py checks invariants, and report.py renders results.
"""


class BenchError(Exception):
    """The measurement failed, and there is no result."""
