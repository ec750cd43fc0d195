"""Who wants the people of a default role to have more labels a ClusterRole, as in Kubernetes."""

import pytest

from pinnace.api.rbac_v1_pb2 import ClusterRole, PolicyRule
from pinnace.api.resources import LEASES
from pinnace.api.verbs_pb2 import GetRequest
from tests.unit.auth.matrix import OTHER, OWN, PEOPLE, may, serving
from tests.unit.registry.test_creating import asked, call


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("view", {"viewer", "editor", "namespace admin"}),
        ("edit", {"editor", "namespace admin"}),
        ("admin", {"namespace admin"}),
        ("nothing", set()),
    ],
)
async def test_aggregated_role_contains_labelled_roles(label: str, expected: set[str]) -> None:
    people = ("viewer", "editor", "namespace admin", "nobody")
    role = ClusterRole(rules=[PolicyRule(verbs=["get"], apiGroups=[LEASES.group], resources=[LEASES.plural])])
    role.metadata.name = "more"
    role.metadata.labels[f"rbac.authorization.k8s.io/aggregate-to-{label}"] = "true"
    async with serving() as assembly:
        get = assembly.methods["/pinnace.v1.Leases/Get"]
        assert not [person for person in people if await may(get, PEOPLE[person], GetRequest(namespace=OWN, name="x"))]
        await call(assembly, "ClusterRoles/Create", asked(assembly, "ClusterRoles/Create", role))
        for namespace, those in ((OWN, expected), (OTHER, set[str]())):
            request = GetRequest(namespace=namespace, name="x")
            assert {person for person in people if await may(get, PEOPLE[person], request)} == those
