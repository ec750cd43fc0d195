"""The built-in plugins: DEFAULTS and OPTIONAL name them. Names, reasons and default weights are those of kube-scheduler."""

from collections.abc import Mapping

from scheduler.framework import Plugin
from scheduler.plugins.coscheduling import Coscheduling
from scheduler.plugins.defaults import DefaultBinder, DefaultPreemption, PrioritySort, SchedulingGates
from scheduler.plugins.inter_pod_affinity import InterPodAffinity
from scheduler.plugins.node_affinity import NodeAffinity
from scheduler.plugins.node_resources import NodeResourcesBalancedAllocation, NodeResourcesFit
from scheduler.plugins.nodes import ImageLocality, NodeName, NodePorts, NodePreferAvoidPods, NodeUnschedulable, TaintToleration
from scheduler.plugins.topology_spread import PodTopologySpread, SelectorSpread
from scheduler.plugins.volume_binding import VolumeBinding
from scheduler.plugins.volumes import NodeVolumeLimits, VolumeRestrictions, VolumeZone

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
