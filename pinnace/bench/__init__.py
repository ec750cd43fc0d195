"""Benchmarks on real clusters. Each starts its own cluster, and a witness checks what it saw.

throughput.py, failover.py, watch.py, flood.py, node_loss.py and scale.py are the rows; calibration.py provides the cluster,
load.py the pods, witness.py the checks, and report.py the results.
"""


class BenchError(Exception):
    """The measurement could not be made: there is no figure."""
