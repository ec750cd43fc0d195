"""Fault injection into a cluster of real processes, and the verdict on its behaviour.

faults/ are the faults, engine.py schedules and executes them, stage.py and world.py provide the cluster, load.py, workers.py
and clients.py the recorded load; run.py is a whole run, scenarios/ and perform.py are single demonstrations.
"""


class ChaosError(Exception):
    """A run could not be made, or its tools failed. It says nothing about the cluster. The message is one line."""
