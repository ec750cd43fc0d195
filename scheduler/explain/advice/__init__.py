"""What would help against a refusal, and what exactly is wrong with one node: by plugin, one idea a file.

advisor.py         what an advisor answers
general.py         for plugins of which nothing more is known than what they say
resources.py       how much is missing, and where least
node_affinity.py   which requirement keeps the pod off
pod_affinity.py    which pods are in the way, or missing
spread.py          which constraint, and how many are there
taints.py          what keeps pods off on purpose
ports.py           who has the port
claims.py          claims that are not there, or that nobody binds
"""

from collections.abc import Mapping

from scheduler.explain.advice import claims, general, node_affinity, pod_affinity, ports, resources, spread, taints
from scheduler.explain.advice.advisor import Advisor, Reasons
from scheduler.plugins.inter_pod_affinity import InterPodAffinity
from scheduler.plugins.node_affinity import NodeAffinity
from scheduler.plugins.node_resources import NodeResourcesFit
from scheduler.plugins.nodes import NodePorts, NodeUnschedulable, TaintToleration
from scheduler.plugins.topology_spread import PodTopologySpread
from scheduler.plugins.volume_binding import VolumeBinding
from scheduler.plugins.volumes import VolumeRestrictions, VolumeZone

_ADVISORS: Mapping[str, Advisor] = {
    NodeUnschedulable.name: taints.Cordoned(),
    TaintToleration.name: taints.Tainted(),
    NodeAffinity.name: node_affinity.Unmatched(),
    NodePorts.name: ports.Taken(),
    NodeResourcesFit.name: resources.Short(),
    PodTopologySpread.name: spread.Skewed(),
    **{plugin.name: claims.Claims(plugin.name) for plugin in (VolumeRestrictions, VolumeBinding, VolumeZone)},
    InterPodAffinity.name: pod_affinity.Unwanted(),
}


def advisor(plugin: str) -> Advisor:
    """One that knows the plugin, or one that repeats its reasons."""
    return _ADVISORS.get(plugin) or general.Unknown(plugin)


__all__ = ["Advisor", "Reasons", "advisor"]
