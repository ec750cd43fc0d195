"""Who may stand for election where: a component in its own, and nobody else in any, until a role says so."""

import pytest

from pinnace.api.authorization_pb2 import AccessReview, ResourceAttributes, SubjectAccessReviewRequest
from pinnace.api.elections_pb2 import CampaignRequest, ElectionHistoryRequest, GetElectionRequest, TransferElectionRequest
from pinnace.api.rbac_v1_pb2 import ClusterRole, ClusterRoleBinding, PolicyRule
from pinnace.apiserver.assembly import Assembly
from tests.unit.auth.matrix import PEOPLE, Caller, may, serving
from tests.unit.registry.test_creating import asked, call

NAMES = ("scheduler", "controllers", "second")


def opening(election: str) -> CampaignRequest:
    return CampaignRequest(open=CampaignRequest.Open(election=election, holder="somebody", secret=bytes(16)))


async def stands(assembly: Assembly, person: str, election: str) -> bool:
    return await may(assembly.methods["/pinnace.v1.Elections/Campaign"], PEOPLE[person], opening(election))


async def why_not(assembly: Assembly, person: str, verb: str, name: str, resource: str = "elections") -> str:
    """What a refusal has for a hint."""
    about = ResourceAttributes(verb=verb, group="pinnace.io", resource=resource, name=name)
    request = SubjectAccessReviewRequest(user=PEOPLE[person].name, groups=PEOPLE[person].groups, attributes=about)
    answer = await assembly.methods["/pinnace.v1.Authorization/SubjectAccessReview"].call(request, Caller(PEOPLE["admin"]))
    review = AccessReview.FromString(answer)
    assert not review.allowed
    return review.reason


async def give(assembly: Assembly, rule: PolicyRule) -> None:
    """To all schedulers, beside what they may by default."""
    role, binding = ClusterRole(rules=[rule]), ClusterRoleBinding()
    role.metadata.name = binding.metadata.name = "second-scheduler"
    binding.roleRef.kind, binding.roleRef.name = "ClusterRole", "second-scheduler"
    binding.subjects.add(kind="User", name="system:kube-scheduler")
    for obj in (role, binding):
        method = f"{type(obj).__name__}s/Create"
        await call(assembly, method, asked(assembly, method, obj))


@pytest.mark.parametrize("person", ["scheduler", "controllers"])
async def test_component_has_to_do_with_its_own_election_only(person: str) -> None:
    """With another's it could keep those from leading; with one that nobody else stands in, bind beside the leader."""
    requests = {"Get": GetElectionRequest, "History": ElectionHistoryRequest, "Transfer": TransferElectionRequest}
    async with serving() as assembly:
        assert {name for name in NAMES if await stands(assembly, person, name)} == {person}
        for verb, request in requests.items():
            method = assembly.methods[f"/pinnace.v1.Elections/{verb}"]
            names = {name for name in NAMES if await may(method, PEOPLE[person], request(name=name))}
            assert names == (set() if verb == "Transfer" else {person}), verb


async def test_second_scheduler_stands_in_an_election_that_a_role_names() -> None:
    async with serving() as assembly:
        assert await why_not(assembly, "scheduler", "campaign", "second") == (
            "this requires a ClusterRoleBinding to a ClusterRole with this name in resourceNames; "
            "system:kube-controller-manager, system:kube-scheduler have other names"
        )
        await give(assembly, PolicyRule(verbs=["campaign"], apiGroups=["pinnace.io"], resources=["elections"],
                                        resourceNames=["second"]))  # fmt: skip
        assert {name for name in NAMES if await stands(assembly, "scheduler", name)} == {"scheduler", "second"}
        assert await why_not(assembly, "controllers", "campaign", "second") == (
            "this requires a ClusterRoleBinding to a ClusterRole such as second-scheduler"
        )


async def test_hint_is_about_the_name_that_was_refused() -> None:
    async with serving() as assembly:
        hint = await why_not(assembly, "controllers", "campaign", "scheduler")
        assert hint == "this requires a ClusterRoleBinding to a ClusterRole such as system:kube-scheduler"
        hint = await why_not(assembly, "nobody", "get", "second")
        assert hint == "this requires a ClusterRoleBinding to a ClusterRole such as cluster-view"
        assert await why_not(assembly, "nobody", "transfer", "second") == ("only the ClusterRole cluster-admin allows this")
        await give(
            assembly, PolicyRule(verbs=["create", "list"], apiGroups=["pinnace.io"], resources=["x"], resourceNames=["a"])
        )
        for verb, name in (("list", ""), ("create", "a")):
            hint = await why_not(assembly, "nobody", verb, name, "x")
            assert hint == "only the ClusterRole cluster-admin allows this", "of no name there is another"
