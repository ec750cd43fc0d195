"""What preemption could do for a pod: the nodes that could take it without their own pods of lower priority; and for the best
of these by the rules of preemption, which pods would have to go.

It is found as the scheduler finds it, one node at a time. Disruption budgets are not asked: they make a victim less liked, not
impossible. Which node preemption would choose is its plugin's business.
"""

from pinnace.api.records import listing
from pinnace.fit.requests import PODS
from scheduler.cache.cache import Cache
from scheduler.cache.pod_info import PodInfo
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.profile import Point
from scheduler.framework.runtime import Framework
from scheduler.preemption.candidates import Bounds, Candidates, Exhausted

MOST = 100
"""Nodes; there is no search for more."""
NEVER = "Never"


def preemption(framework: Framework, pod: PodInfo, cache: Cache, diagnosis: Diagnosis) -> str:
    """A sentence; empty when there is nothing to say. `diagnosis`: why no node takes the pod as things are. Raises
    PluginError."""
    lower = cache.below(pod.priority)
    if PODS not in lower or not lower[PODS].any():
        return ""
    try:
        found = Candidates(Bounds(0, MOST)).find(pod, diagnosis, cache, framework, (), 0)
    except Exhausted:
        return "it may help: the search for a node takes too long to be made here"
    if isinstance(found, Diagnosis):
        return f"it would not help: no node could take it, not even without its pods of lower priority than {pod.priority}"
    best = min(found, key=lambda each: (each.rank, each.node))
    more = " or more" if len(found) == MOST else ""
    room = "1 node could take it without its" if len(found) == 1 else f"{len(found)} nodes{more} could take it without their"
    victims = listing([victim.key for victim in best.pods])
    would = f"{room} pods of lower priority than {pod.priority}; on {best.node} {victims} would have to go"
    if pod.raw.spec.preemptionPolicy == NEVER:
        return f"{would}; but its preemptionPolicy is Never"
    if not framework.profile.get(Point.POST_FILTER):
        return f"{would}; but no plugin of the profile preempts"
    return would
