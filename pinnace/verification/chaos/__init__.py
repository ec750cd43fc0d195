"""Fault injection into a cluster of real processes, with a verdict on its behaviour.

faults/ implements the faults, and engine.py schedules and injects them. stage.py and cluster_under_test.py provide the cluster,
and load.py, workers.py and clients.py generate the recorded load. run.py executes a run; scenarios/ and perform.py execute
single scenarios."""


class ChaosError(Exception):
    """A run could not be executed, or its tools failed. It is not a verdict on the cluster. The message is one line."""
