"""The classic names of predicates and priorities, from before plugins: a configuration may use them for today's.

Not listed: MostRequestedPriority and RequestedToCapacityRatioPriority are NodeResourcesFit with another `scoringStrategy`;
CheckNodeCondition has gone, nodes that are not ready have a taint.

Source: https://v1-22.docs.kubernetes.io/docs/reference/scheduling/policies/, and the names' translation in
k8s.io/kubernetes/pkg/scheduler/framework/plugins/legacy_registry.go (v1.22)
"""

from collections.abc import Mapping

ALIASES: Mapping[str, str] = {
    "PodFitsResources": "NodeResourcesFit",
    "PodFitsHostPorts": "NodePorts",
    "PodFitsPorts": "NodePorts",
    "HostName": "NodeName",
    "MatchNodeSelector": "NodeAffinity",
    "PodToleratesNodeTaints": "TaintToleration",
    "CheckNodeUnschedulable": "NodeUnschedulable",
    "CheckNodeMemoryPressure": "TaintToleration",
    "CheckNodeDiskPressure": "TaintToleration",
    "CheckNodePIDPressure": "TaintToleration",
    "MatchInterPodAffinity": "InterPodAffinity",
    "EvenPodsSpread": "PodTopologySpread",
    "NoDiskConflict": "VolumeRestrictions",
    "NoVolumeZoneConflict": "VolumeZone",
    "MaxCSIVolumeCountPred": "NodeVolumeLimits",
    "CheckVolumeBinding": "VolumeBinding",
    "NoVolumeNodeConflict": "VolumeBinding",
    "LeastRequestedPriority": "NodeResourcesFit",
    "BalancedResourceAllocation": "NodeResourcesBalancedAllocation",
    "SelectorSpreadPriority": "SelectorSpread",
    "ServiceSpreadingPriority": "SelectorSpread",
    "InterPodAffinityPriority": "InterPodAffinity",
    "NodeAffinityPriority": "NodeAffinity",
    "TaintTolerationPriority": "TaintToleration",
    "ImageLocalityPriority": "ImageLocality",
    "EvenPodsSpreadPriority": "PodTopologySpread",
    "NodePreferAvoidPodsPriority": "NodePreferAvoidPods",
}
