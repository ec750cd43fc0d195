"""The checks of lab 4: kill the leader."""

from collections.abc import Sequence
from itertools import pairwise

from pinnace.api import fences
from pinnace.api.elections_pb2 import Term
from pinnace.api.resources import DEPLOYMENTS, PODS
from pinnace.api.scalars import to_seconds
from pinnace.client.client import Client
from pinnace.client.errors import NotFound
from pinnace.verification.labs.checks import CheckFailed, list_terms

REPLICAS = 2500


def _terms_ended_by(found: Sequence[Term], reason: str) -> list[tuple[Term, Term]]:
    """Return the terms that ended for this reason, each with the next one."""
    return [(term, following) for term, following in pairwise(found) if term.reason.startswith(reason)]


def _gap_between(term: Term, following: Term) -> float:
    return max(0.0, float(to_seconds(following.began) - to_seconds(term.ended)))


async def check_start(client: Client) -> str:
    result = await list_terms(client)
    if not result:
        raise CheckFailed('the election "scheduler" has had no leader')
    try:
        election = await client.elections.get("scheduler")
        present = {election.holder, *(candidate.holder for candidate in election.candidates)}
    except NotFound:
        present = set()
    joined = present | {term.holder for term in result}
    if len(joined) < 3:
        raise CheckFailed(f"{len(joined)} schedulers have joined the election, not 3")
    return f'{len(joined)} schedulers have joined the election "scheduler"; the first leader was {result[0].holder}'


async def check_kill(client: Client) -> str:
    ended = _terms_ended_by(await list_terms(client), "stream closed")
    if not ended:
        raise CheckFailed("no leader was killed: no term has ended because its stream was closed")
    term, following = min(ended, key=lambda pair: _gap_between(*pair))
    gap = _gap_between(term, following) * 1000
    return f"{term.holder} was killed: {following.holder} led {gap:.0f} ms later, with a higher token"


async def check_transfer(client: Client) -> str:
    ended = _terms_ended_by(await list_terms(client), "transferred")
    if not ended:
        raise CheckFailed("no term has ended by a transfer")
    return f"the leadership was transferred to {ended[-1][1].holder}"


async def check_vacant(client: Client) -> str:
    longest = max((_gap_between(*pair) for pair in _terms_ended_by(await list_terms(client), "stream closed")), default=0.0)
    if longest < 2:
        try:
            await client.elections.get("scheduler")
        except NotFound:
            raise CheckFailed("there is no leader: start the schedulers with `pinnace start`, and check again") from None
        raise CheckFailed("there was always a leader, or another one within two seconds: not all schedulers were killed")
    return f"no leader for {longest:.0f} s"


async def check_lease(client: Client) -> str:
    ended = _terms_ended_by(await list_terms(client), "lease expired")
    if not ended:
        raise CheckFailed("no lease has expired: an API server noticed the end of each term")
    return f"the lease of {ended[-1][0].holder} expired, and {ended[-1][1].holder} led after it"


async def check_work(client: Client) -> str:
    try:
        steady = await client.of(DEPLOYMENTS).get("steady", "default")
    except NotFound:
        raise CheckFailed("deployment/steady does not exist") from None
    pods = [item for item in (await client.of(PODS).list("default", labels="app=steady")).items if item.spec.nodeName]
    if len(pods) != REPLICAS or any(pod.status.phase != "Running" for pod in pods):
        running = sum(pod.status.phase == "Running" for pod in pods)
        raise CheckFailed(f"{running} of {REPLICAS} pods of deployment/steady run")
    created = to_seconds(steady.metadata.creationTimestamp)
    result = [
        term
        for term in await list_terms(client)
        if to_seconds(term.ended) >= created and term.reason.startswith("stream closed")
    ]
    if not result:
        raise CheckFailed("no leader was killed after the creation of deployment/steady")
    tokens = {fences.fence_of(pod).token for pod in pods}
    leaders = f"{len(tokens)} leaders" if len(tokens) > 1 else "one leader: it was killed before or after its work"
    return f"all {REPLICAS} pods of deployment/steady run, and each was bound once, by {leaders}"


CHECKS = {
    "start": check_start,
    "kill": check_kill,
    "transfer": check_transfer,
    "vacant": check_vacant,
    "lease": check_lease,
    "work": check_work,
}
