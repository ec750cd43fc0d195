"""The built-in plugins, one idea a file: DEFAULTS and OPTIONAL name them. Names, reasons and default weights are those of
kube-scheduler. The other files are what plugins are made of:

    arguments.py            what is wrong with a plugin's arguments, by path; aliases.py: names from before there were plugins
    listers.py              what they read of other objects than pods and nodes
    added_affinity.py       the affinity that NodeAffinity's arguments give every pod
    scoring_strategy.py     how NodeResourcesFit likes nodes
    tolerations.py          the taints that keep a pod away
    topology.py             sums over the nodes that share a label's value
    spread_constraints.py   topology spread constraints, parsed: the pod's own, or the default ones
    claims.py               what all volume plugins ask of a pod's claims
    volume_matching.py      which free volume fulfils which claim; volume_writes.py: what binds the two, and may be repeated
"""

from collections.abc import Mapping

from scheduler.framework import Plugin
from scheduler.plugins.coscheduling import Coscheduling
from scheduler.plugins.default_binder import DefaultBinder
from scheduler.plugins.default_preemption import DefaultPreemption
from scheduler.plugins.image_locality import ImageLocality
from scheduler.plugins.inter_pod_affinity import InterPodAffinity
from scheduler.plugins.node_affinity import NodeAffinity
from scheduler.plugins.node_name import NodeName
from scheduler.plugins.node_ports import NodePorts
from scheduler.plugins.node_prefer_avoid_pods import NodePreferAvoidPods
from scheduler.plugins.node_resources_balanced import NodeResourcesBalancedAllocation
from scheduler.plugins.node_resources_fit import NodeResourcesFit
from scheduler.plugins.node_unschedulable import NodeUnschedulable
from scheduler.plugins.node_volume_limits import NodeVolumeLimits
from scheduler.plugins.pod_topology_spread import PodTopologySpread
from scheduler.plugins.priority_sort import PrioritySort
from scheduler.plugins.scheduling_gates import SchedulingGates
from scheduler.plugins.selector_spread import SelectorSpread
from scheduler.plugins.taint_toleration import TaintToleration
from scheduler.plugins.volume_binding import VolumeBinding
from scheduler.plugins.volume_restrictions import VolumeRestrictions
from scheduler.plugins.volume_zone import VolumeZone

DEFAULTS: Mapping[str, tuple[type[Plugin], float]] = {
    SchedulingGates.name: (SchedulingGates, 0),
    PrioritySort.name: (PrioritySort, 0),
    NodeUnschedulable.name: (NodeUnschedulable, 0),
    NodeName.name: (NodeName, 0),
    TaintToleration.name: (TaintToleration, 3),
    NodeAffinity.name: (NodeAffinity, 2),
    NodePorts.name: (NodePorts, 0),
    NodeResourcesFit.name: (NodeResourcesFit, 1),
    VolumeRestrictions.name: (VolumeRestrictions, 0),
    NodeVolumeLimits.name: (NodeVolumeLimits, 0),
    VolumeBinding.name: (VolumeBinding, 0),
    VolumeZone.name: (VolumeZone, 0),
    PodTopologySpread.name: (PodTopologySpread, 2),
    InterPodAffinity.name: (InterPodAffinity, 2),
    NodeResourcesBalancedAllocation.name: (NodeResourcesBalancedAllocation, 1),
    ImageLocality.name: (ImageLocality, 1),
    SelectorSpread.name: (SelectorSpread, 0),
    NodePreferAvoidPods.name: (NodePreferAvoidPods, 0),
    DefaultPreemption.name: (DefaultPreemption, 0),
    DefaultBinder.name: (DefaultBinder, 0),
}
"""Name -> (class, weight of its score), in the order in which they run: a refusal is told for the first that refuses.
With weight 0 a plugin does not score unless a configuration says so: Kubernetes has these two no more."""

OPTIONAL: Mapping[str, type[Plugin]] = {Coscheduling.name: Coscheduling}
"""Those that take part nowhere unless a configuration enables them."""
