"""Claims that a pod names, and that are not there, whichever of the volume plugins says so; and those that nobody binds."""

from collections.abc import Container, Sequence

from pinnace.api.core_v1_pb2 import PersistentVolumeClaim
from pinnace.api.pods import class_of
from pinnace.api.records import Remedy
from pinnace.api.resources import STORAGE_CLASSES
from scheduler.explain.advice.advisor import Reasons, names_of
from scheduler.explain.advice.general import Unknown
from scheduler.explain.case import Case
from scheduler.plugins.volume_binding import NO_PROVISIONER, UNBOUND_IMMEDIATE, binds_at_once
from scheduler.plugins.volumes import NO_CLASS, NO_SUCH_CLASS, NO_VOLUME, Volumes, claims_of, missing

_WAITING = "volumeBindingMode: WaitForFirstConsumer"


class Claims:
    def __init__(self, plugin: str) -> None:
        self._general = Unknown(plugin)

    def remedies(self, case: Case, reasons: Reasons) -> list[Remedy]:
        found, others, unbound = [], dict[str, Sequence[int]](), _unbound(case)
        for reason, rows in reasons.items():
            if name := missing(reason):
                found.append(Remedy(f"create the PersistentVolumeClaim {name}", names_of(case, rows)))
            elif _is_about(reason, unbound):
                found.append(Remedy(_binding(case, unbound), names_of(case, rows)))
            else:
                others[reason] = rows
        return [*found, *self._general.remedies(case, others)]

    def details(self, case: Case, row: int, reasons: Sequence[str]) -> list[str]:
        unbound = _unbound(case)
        return [f"{each}: {_binding(case, unbound)}" if _is_about(each, unbound) else each for each in reasons]


def _unbound(case: Case) -> list[PersistentVolumeClaim]:
    """The pod's claims that do not wait for it."""
    objects = Volumes(case.objects)
    claims = [objects.claim_of(case.pod, key) for key in claims_of(case.pod)]
    return [each for each in claims if not isinstance(each, str) and binds_at_once(objects, each)]


def _is_about(reason: str, unbound: Sequence[PersistentVolumeClaim]) -> bool:
    classes = [NO_SUCH_CLASS.format(class_of(claim)) for claim in unbound]
    return bool(unbound) and reason in (UNBOUND_IMMEDIATE, NO_CLASS, NO_VOLUME, *classes)


def _binding(case: Case, unbound: Sequence[PersistentVolumeClaim]) -> str:
    """What would have them bound: once for each class."""
    return "; and ".join(dict.fromkeys(_bind(claim, case.objects.objects(STORAGE_CLASSES)) for claim in unbound))


def _bind(claim: PersistentVolumeClaim, classes: Container[str]) -> str:
    name, wanted = claim.metadata.name, class_of(claim)
    if claim.spec.volumeName:
        return f"bind the PersistentVolumeClaim {name} to {claim.spec.volumeName}, which it names: nobody does that here"
    if not wanted:
        return f"give the PersistentVolumeClaim {name} a class with {_WAITING}: nobody binds claims without one here"
    if wanted in classes:
        return f"make the StorageClass {wanted} anew, with {_WAITING}: nobody binds its claims at once here"
    return f"create the StorageClass {wanted}, with provisioner: {NO_PROVISIONER} and {_WAITING}"
