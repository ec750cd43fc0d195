"""Endpoints, put into slices. Pure.

A slice has at most CAPACITY endpoints of one group. An endpoint that is in a slice stays there; new ones fill slices that
change anyhow, then new ones; the last few of them go into one other slice that has room for all. So few slices change: each
change goes to every node. Slices of ports that nobody has any more become those that are new. A service without endpoints has
one empty slice.

Source: https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/#distribution-of-endpointslices
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from controllers.endpointslices.endpoints import Group
from controllers.ownership import refers_to
from pinnace.api.core_v1_pb2 import Service
from pinnace.api.discovery_v1_pb2 import Endpoint, EndpointPort, EndpointSlice
from pinnace.api.resources import SERVICES
from pinnace.api.wellknown import SERVICE_LABEL

CAPACITY = 100
MANAGED_BY_LABEL = "endpointslice.kubernetes.io/managed-by"
MANAGER = "endpointslice-controller.k8s.io"
_HEADLESS_LABEL = "service.kubernetes.io/headless"


@dataclass(slots=True)
class Changes:
    """What is to be updated is a copy."""

    create: list[EndpointSlice] = field(default_factory=list)
    update: list[EndpointSlice] = field(default_factory=list)
    delete: list[EndpointSlice] = field(default_factory=list)


def changes(service: Service, wanted: Mapping[Group, Sequence[Endpoint]], existing: Iterable[EndpointSlice]) -> Changes:
    """`existing`: the slices of a service of this name that are managed here. Those of an earlier one are the garbage
    collector's already: nothing is put into them."""
    by_group: dict[Group, list[EndpointSlice]] = {group: [] for group in wanted or [_nothing(service)]}
    found = Changes()
    for each in sorted(existing, key=lambda each: each.metadata.name):
        (by_group.get(_group_of(each), found.delete) if _owned(service, each) else found.delete).append(each)
    for group, slices in by_group.items():
        _arrange(service, group, wanted.get(group, ()), slices, found)
    return _recycled(service, found)


def _owned(service: Service, each: EndpointSlice) -> bool:
    return any(owner.uid == service.metadata.uid for owner in each.metadata.ownerReferences)


def _arrange(
    service: Service, group: Group, endpoints: Sequence[Endpoint], slices: Sequence[EndpointSlice], found: Changes
) -> None:
    left = {each.targetRef.uid: each for each in endpoints}
    kept = [[left.pop(one.targetRef.uid) for one in each.endpoints if one.targetRef.uid in left] for each in slices]
    new = list(left.values())
    changed = [_updated(service, each, own) != each for each, own in zip(slices, kept, strict=True)]
    for index in sorted((index for index, does in enumerate(changed) if does), key=lambda index: -len(kept[index])):
        room = CAPACITY - len(kept[index])
        kept[index] += new[:room]
        new = new[room:]
    made = [new[start : start + CAPACITY] for start in range(0, len(new), CAPACITY)]
    if made and (fullest := _with_room(kept, changed, len(made[-1]))) is not None:
        kept[fullest] += made.pop()
    if not endpoints and not slices:
        made = [[]]
    found.create += [_slice(service, group, each) for each in made]
    empty = [index for index, own in enumerate(kept) if not own]
    doomed = set(empty if endpoints else empty[1:])
    for index, each in enumerate(slices):
        if index in doomed:
            found.delete.append(each)
        elif (after := _updated(service, each, kept[index])) != each:
            found.update.append(after)


def _with_room(kept: Sequence[Sequence[Endpoint]], changed: Sequence[bool], count: int) -> int | None:
    """The fullest of the slices that do not change which has room for so many; None: none has, or they are a slice's worth."""
    if count == CAPACITY:
        return None
    fits = [index for index, own in enumerate(kept) if not changed[index] and len(own) + count <= CAPACITY]
    return max(fits, key=lambda index: len(kept[index]), default=None)


def _recycled(service: Service, found: Changes) -> Changes:
    """What would go becomes what would be made: one write instead of two, and who watches never sees both, or neither."""
    kept = Changes(update=found.update)
    spare: dict[str, list[EndpointSlice]] = {}
    for each in found.delete:
        (spare.setdefault(each.addressType, []) if _owned(service, each) else kept.delete).append(each)
    for made in found.create:
        if olds := spare.get(made.addressType):
            after = _updated(service, olds.pop(0), made.endpoints)
            del after.ports[:]
            after.ports.extend(made.ports)
            kept.update.append(after)
        else:
            kept.create.append(made)
    kept.delete += chain.from_iterable(spare.values())
    return kept


def _nothing(service: Service) -> Group:
    """Of the slice of a service that has no endpoints."""
    family = next(iter(service.spec.ipFamilies), "IPv6" if ":" in service.spec.clusterIP else "IPv4")
    return Group(family, ())


def _group_of(each: EndpointSlice) -> Group:
    return Group(each.addressType, tuple(port.SerializeToString(deterministic=True) for port in each.ports))


def _slice(service: Service, group: Group, endpoints: Sequence[Endpoint]) -> EndpointSlice:
    made = EndpointSlice(addressType=group.address_type, ports=[EndpointPort.FromString(each) for each in group.ports])
    made.metadata.generateName, made.metadata.namespace = f"{service.metadata.name}-", service.metadata.namespace
    made.metadata.ownerReferences.append(refers_to(SERVICES, service))
    made.metadata.labels.update(_labels(service))
    made.endpoints.extend(endpoints)
    return made


def _updated(service: Service, each: EndpointSlice, endpoints: Sequence[Endpoint]) -> EndpointSlice:
    after = EndpointSlice()
    after.CopyFrom(each)
    del after.endpoints[:]
    after.endpoints.extend(endpoints)
    after.metadata.labels.clear()
    after.metadata.labels.update(_labels(service))
    return after


def _labels(service: Service) -> dict[str, str]:
    """The service's own, and what says whose slice it is: that is not the service's to say."""
    labels = {**service.metadata.labels, SERVICE_LABEL: service.metadata.name, MANAGED_BY_LABEL: MANAGER}
    labels.pop(_HEADLESS_LABEL, None)
    if service.spec.clusterIP == "None":
        labels[_HEADLESS_LABEL] = ""
    return labels
