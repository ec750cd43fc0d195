"""The built-in plugins of the scheduler. Names, reasons and default weights are those of kube-scheduler."""

from collections.abc import Mapping

from pinnace.scheduler.framework import Plugin
from pinnace.scheduler.plugins.coscheduling import Coscheduling
from pinnace.scheduler.plugins.default_preemption import DefaultPreemption
from pinnace.scheduler.plugins.gpu_share import GpuShare
from pinnace.scheduler.plugins.inter_pod_affinity import InterPodAffinity
from pinnace.scheduler.plugins.node_affinity import NodeAffinity
from pinnace.scheduler.plugins.node_resources import NodeResourcesBalancedAllocation, NodeResourcesFit
from pinnace.scheduler.plugins.nodes import (
    ImageLocality,
    NodeName,
    NodePorts,
    NodePreferAvoidPods,
    NodeUnschedulable,
    TaintToleration,
)
from pinnace.scheduler.plugins.queue_and_bind import DefaultBinder, PrioritySort, SchedulingGates
from pinnace.scheduler.plugins.topology_spread import PodTopologySpread, SelectorSpread
from pinnace.scheduler.plugins.volume_binding import VolumeBinding
from pinnace.scheduler.plugins.volumes import NodeVolumeLimits, VolumeRestrictions, VolumeZone

DEFAULT_PLUGINS: Mapping[str, tuple[type[Plugin], float]] = {
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
"""Plugins that every profile enables by default: name -> (class, default weight of the score).

Plugins run in this order, and the first filter that refuses a node supplies the reason. A plugin with weight 0 scores only if a
configuration sets a weight. SelectorSpread and NodePreferAvoidPods have the weight 0 because Kubernetes has removed them."""

OPTIONAL_PLUGINS: Mapping[str, type[Plugin]] = {Coscheduling.name: Coscheduling, GpuShare.name: GpuShare}
"""Plugins that run only if a configuration enables them."""
