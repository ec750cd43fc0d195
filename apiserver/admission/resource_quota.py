"""ResourceQuota: an object that a quota of its namespace has no room for is refused, and so is a pod that does not say what the
quota must know of it.

What is refused here was looked at in the cache. What is let through is charged, exactly, when it is stored (apiserver.quota):
so this is for those who only want to know (dry run), and so that those who come in vain keep nobody waiting.

Source: https://kubernetes.io/docs/concepts/policy/resource-quotas/
"""

from apiserver import errors
from apiserver.errors import Rejected
from apiserver.quota.states import States
from apiserver.quota.tally import Tally
from apiserver.quota.usage import COUNTED, kind_of, use_of
from apiserver.registry.admission import Operation, Request
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import Object
from pinnace.runtime.clock import Clock


class ResourceQuota:
    asked = tuple((Operation.CREATE, resource) for resource in COUNTED)

    def __init__(self, states: States, tally: Tally, clock: Clock) -> None:
        self._states = states
        self._tally = tally
        self._clock = clock

    def validate(self, request: Request, operation: Operation, obj: Object, old: None) -> None:
        """What seems to be used may be more than what is, until it is counted: that is done only where it matters."""
        namespace = obj.metadata.namespace
        if namespace not in self._states.keys:
            return
        use = use_of(obj, self._clock.time())
        for state in self._states.cached(namespace):
            bounds, share = state.bounds, state.bounds.share(use)
            problem = bounds.unstated(obj, use) if isinstance(obj, Pod) else ""
            if not problem and share and (bounds.used is None or bounds.excess(bounds.used, share)):
                problem = bounds.excess(bounds.total(self._tally.of(namespace)), share)
            if problem:
                raise Rejected(errors.forbidden(f'{kind_of(obj).plural} "{obj.metadata.name}" is forbidden: {problem}'))
