"""The extender that binds, as the first Bind plugin of every profile. Pods that do not interest it go on to the others."""

from pinnace.api.pods_pb2 import Fence
from pinnace.api.status import Code, Refusal
from pinnace.client.errors import ApiError, from_refusal, outcome_unknown, unavailable
from scheduler.cache.pod_info import PodInfo
from scheduler.extenders.extender import Extender
from scheduler.extenders.interface import AnswerLost, ExtenderError, NotSent
from scheduler.framework.results import SKIP, CycleState, Status


class ExtenderBinder:
    """It answers for its binds as every Bind plugin does (`scheduler.framework.interface.BindPlugin`): with the fence passed
    on, whatever it does after its leader has been deposed is refused by the API server. What it says is not believed when it
    says that a pod is not bound: the pod is read."""

    def __init__(self, extender: Extender) -> None:
        self.name = extender.name
        self._extender = extender

    def pre_flight(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        return None if self._extender.interested(pod) else SKIP

    async def bind(self, state: CycleState, pod: PodInfo, node: str, fence: Fence) -> Status | None:
        try:
            await self._extender.bind(pod, node, fence)
        except ExtenderError as error:
            if self._extender.ignorable:  # whoever binds it now binds it to the same node: only one of them can
                self._extender.excuse(error)
                return SKIP
            if isinstance(error, NotSent):
                raise
            raise _as_api_error(error) from error
        return None


def _as_api_error(error: ExtenderError) -> ApiError:
    if isinstance(error, AnswerLost):
        return outcome_unknown(unavailable(str(error)))
    return from_refusal(Refusal(Code.ABORTED, "", str(error)))
