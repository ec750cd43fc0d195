"""DefaultTolerationSeconds: a pod stays for some minutes on a node that is not ready or cannot be reached, unless it says
otherwise.

In Kubernetes it is an admission plugin; here it belongs to what a pod gets that does not say, so that it is worked out once for
all pods of a template.

Source: https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#defaulttolerationseconds
"""

from pinnace.api.core_v1_pb2 import PodSpec, Toleration
from pinnace.api.wellknown import NOT_READY_TAINT, UNREACHABLE_TAINT

SECONDS = 300


class DefaultTolerations:
    def __init__(self, not_ready: int = SECONDS, unreachable: int = SECONDS) -> None:
        """Seconds, of each of the two."""
        self._both = PodSpec(
            tolerations=[
                Toleration(key=key, operator="Exists", effect="NoExecute", tolerationSeconds=seconds)
                for key, seconds in ((NOT_READY_TAINT, not_ready), (UNREACHABLE_TAINT, unreachable))
            ]
        )

    def complete(self, spec: PodSpec) -> None:
        tolerations = spec.tolerations
        if not tolerations:
            spec.MergeFrom(self._both)
            return
        told = {toleration.key for toleration in tolerations if toleration.effect in ("NoExecute", "")}
        if "" not in told:
            tolerations.extend(toleration for toleration in self._both.tolerations if toleration.key not in told)
