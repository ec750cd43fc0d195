"""Who has a right to one object by its name may list and watch that one, and nothing else; and may not create it."""

from typing import Any

import pytest

from pinnace.api.rbac_v1_pb2 import ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding
from pinnace.api.selectors import MAX_LENGTH
from pinnace.apiserver.assembly import Assembly
from tests.builders import make_pod
from tests.unit.auth.matrix import OTHER, OTHER_NODE, OWN, OWN_NODE, PEOPLE, may, serving
from tests.unit.registry.test_creating import asked, call

NEMO = PEOPLE["nobody"]
VERBS = ["list", "watch", "deletecollection"]


async def give(assembly: Assembly, role: Role | ClusterRole, binding: RoleBinding | ClusterRoleBinding) -> None:
    role.metadata.name = binding.metadata.name = "one"
    binding.roleRef.kind, binding.roleRef.name = type(role).__name__, "one"
    binding.subjects.add(kind="User", name=NEMO.name)
    for obj in (role, binding):
        method = f"{type(obj).__name__}s/Create"
        await call(assembly, method, asked(assembly, method, obj))


async def asks(assembly: Assembly, name: str, selector: str, namespace: str = "", user: Any = NEMO, **fields: str) -> bool:
    """May he?"""
    method = assembly.methods[f"/pinnace.v1.{name}"]
    request: Any = method.parse(b"")
    request.namespace, request.options.fieldSelector = namespace, selector
    for field, value in fields.items():
        setattr(request, field, value)
    return await may(method, user, request)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("metadata.name=thing", True),
        ("metadata.name == thing", True),
        ("status.phase=Running,metadata.name=thing", True),
        ("metadata.name=other", False),
        ("metadata.name!=thing", False),
        ("metadata.name in (thing,other)", False),
        ("", False),
        ("spec.nodeName=a\\,metadata.name\\=thing", False),
        ("metadata.name=", False),
        ("metadata.name=thing,", False),
        ("nonsense=1,metadata.name=thing", False),
        (f"metadata.name=thing,spec.nodeName!={'x' * (MAX_LENGTH['field'] // 8)}", False),
    ],
)
async def test_list_that_is_narrowed_to_one_name_is_of_that(selector: str, expected: bool) -> None:
    rule = PolicyRule(verbs=VERBS, apiGroups=["", "metrics.k8s.io"], resources=["pods"], resourceNames=["thing"])
    async with serving() as assembly:
        role, binding = Role(rules=[rule]), RoleBinding()
        role.metadata.namespace = binding.metadata.namespace = OWN
        await give(assembly, role, binding)
        for method in ("Pods/List", "Pods/Watch", "PodMetrics/List"):
            assert await asks(assembly, method, selector, OWN) is expected, method
        assert await asks(assembly, "Tables/List", selector, OWN, resource="pods") is expected
        for namespace in (OTHER, ""):
            assert not await asks(assembly, "Pods/List", selector, namespace)
        assert not await asks(assembly, "Tables/List", selector, OWN, resource="services")
        assert not await asks(assembly, "Pods/DeleteCollection", selector, OWN), "as in Kubernetes"


async def test_permission_for_a_name_does_not_allow_create() -> None:
    rule = PolicyRule(verbs=["*"], apiGroups=[""], resources=["pods"], resourceNames=["new"])
    async with serving() as assembly:
        role, binding = Role(rules=[rule]), RoleBinding()
        role.metadata.namespace = binding.metadata.namespace = OWN
        await give(assembly, role, binding)
        pod = make_pod("new", namespace=OWN).req(cpu="1").new()
        for method, batch in (("Pods/Create", False), ("Pods/CreateBatch", True)):
            request = asked(assembly, method, pod, batch=batch)
            assert not await may(assembly.methods[f"/pinnace.v1.{method}"], NEMO, request), method
        await call(assembly, "Pods/Create", asked(assembly, "Pods/Create", pod))
        update = assembly.methods["/pinnace.v1.Pods/Update"]
        assert await may(update, NEMO, asked(assembly, "Pods/Update", pod))


async def test_name_rules_apply_to_cluster_scoped_resources() -> None:
    rule = PolicyRule(verbs=VERBS, apiGroups=[""], resources=["nodes"], resourceNames=[OWN_NODE])
    async with serving() as assembly:
        await give(assembly, ClusterRole(rules=[rule]), ClusterRoleBinding())
        assert await asks(assembly, "Nodes/List", f"metadata.name={OWN_NODE}")
        assert not await asks(assembly, "Nodes/List", f"metadata.name={OTHER_NODE}")


async def test_fleet_gains_nothing_by_a_name() -> None:
    async with serving() as assembly:
        fleet = PEOPLE["fleet"]
        assert await asks(assembly, "Nodes/List", f"metadata.name={OWN_NODE}", user=fleet)
        assert not await asks(assembly, "Nodes/List", f"metadata.name={OTHER_NODE}", user=fleet)
        assert not await asks(assembly, "Pods/List", "metadata.name=thing", OWN, user=fleet)
        assert not await asks(assembly, "Leases/List", f"metadata.name={OTHER_NODE}", "kube-node-lease", user=fleet)
