"""L3, L4, L5, F: nothing is bound, another user waits or is refused, and a figure that is out of its bounds or was not read."""

import random
from dataclasses import replace

from pinnace.history.records import CallRecord, FaultRecord, Observation, PodFacts, StoredChange
from tests.unit.check.mutations.registry import Records, breaks
from tests.unit.check.mutations.tools import all_of, put_instead
from tests.unit.check.world import ATTACK, BYSTANDER, FLOOD, GATEWAY_BYSTANDER


def _flood(records: Records) -> FaultRecord:
    return all_of(records, FaultRecord, lambda fault: fault.name == FLOOD)[-1]


def _delayed(records: Records, since: float, seconds: float) -> Records:
    """All that happens after `since` happens later."""
    later: Records = []
    for record in records:
        changes = {
            name: value + seconds
            for name in ("at", "began", "ended")
            if isinstance(value := getattr(record, name, None), float) and value > since
        }
        later.append(replace(record, **changes) if changes else record)
    return later


@breaks("L3")
def nothing_is_bound_during_a_flood(records: Records, rng: random.Random) -> Records:
    """A leader that holds its election and does nothing, or that decides about one pod for ever."""
    flood = _flood(records)
    binds = all_of(records, StoredChange, lambda stored: isinstance(stored.facts, PodFacts) and bool(stored.facts.node))
    first = next(stored for stored in binds if stored.at > flood.began)
    return _delayed(records, first.at - 1e-6, 8.0)


@breaks("L4")
def a_bystander_waits(records: Records, rng: random.Random) -> Records:
    for call in all_of(records, CallRecord, lambda call: call.client == BYSTANDER)[:4]:
        records = put_instead(records, call, replace(call, began=call.began - 0.6))
    flood = _flood(records)
    for fault in all_of(records, FaultRecord, lambda fault: fault.id == flood.id):
        records = put_instead(records, fault, replace(fault, began=fault.began - 0.6))
    return records


@breaks("L4")
def a_bystander_is_refused(records: Records, rng: random.Random) -> Records:
    call = rng.choice(all_of(records, CallRecord, lambda call: call.client == BYSTANDER))
    return put_instead(records, call, replace(call, outcome="refused", code="RESOURCE_EXHAUSTED", items=()))


@breaks("L5")
def one_call_through_an_attacked_gateway_waits(records: Records, rng: random.Random) -> Records:
    """A single call of a few: with so few calls, one is more than a hundredth."""
    call = all_of(records, CallRecord, lambda call: call.client == GATEWAY_BYSTANDER)[0]
    records = put_instead(records, call, replace(call, began=call.began - 0.3))
    for fault in all_of(records, FaultRecord, lambda fault: fault.name == ATTACK):
        records = put_instead(records, fault, replace(fault, began=fault.began - 0.3))
    return records


@breaks("L5")
def a_call_through_an_attacked_gateway_is_refused(records: Records, rng: random.Random) -> Records:
    call = rng.choice(all_of(records, CallRecord, lambda call: call.client == GATEWAY_BYSTANDER))
    return put_instead(records, call, replace(call, outcome="refused", code="503", items=()))


@breaks("F")
def too_little_is_observed(records: Records, rng: random.Random) -> Records:
    (observed,) = all_of(records, Observation)
    return put_instead(records, observed, replace(observed, value=0.0))


@breaks("F")
def too_much_is_observed(records: Records, rng: random.Random) -> Records:
    (observed,) = all_of(records, Observation)
    return put_instead(records, observed, replace(observed, least=None, most=3.0))


def unobserved(records: Records) -> Records:
    """The fault was on, and read nothing of its target; for the run as a whole, not for an invariant."""
    (observed,) = all_of(records, Observation)
    return put_instead(records, observed)
