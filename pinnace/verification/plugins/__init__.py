"""Tests of scheduler plugins without a cluster: a small cluster for unit tests, and checks on random clusters.

`pinnace plugin new` writes a test that uses them, `pinnace plugin test` runs the checks, and so do the tests of the built-in
plugins.
"""

from pinnace.verification.plugins.checks import Report, check_plugin
from pinnace.verification.plugins.world import PluginCluster, make_node, make_pod

__all__ = ["PluginCluster", "Report", "check_plugin", "make_node", "make_pod"]
