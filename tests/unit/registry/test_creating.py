"""Names that the server makes up, what updates must say, and what they cannot change."""

import json
import random
from typing import Any

import pytest

from pinnace.api.apps_v1_pb2 import Deployment
from pinnace.api.batch_v1_pb2 import Job
from pinnace.api.codec import from_dict
from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.core_v1_pb2 import ConfigMap, LimitRange, Namespace, Node, Pod, ResourceQuota, Secret, ServiceAccount
from pinnace.api.discovery_v1_pb2 import EndpointSlice
from pinnace.api.meta_v1_pb2 import OwnerReference
from pinnace.api.policy_v1_pb2 import PodDisruptionBudget
from pinnace.api.resources import DEPLOYMENTS, PODS
from pinnace.api.storage_v1_pb2 import CSINode
from pinnace.api.verbs_pb2 import BatchResponse, DeleteRequest, GetRequest, PatchRequest
from pinnace.apiserver.assembly import Assembly
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.strategies import STRATEGIES
from pinnace.apiserver.registry.strategy import collect_warnings
from tests.builders import make_pod
from tests.unit.auth.matrix import OWN, OWN_NODE, PEOPLE, Caller, serving


async def call(assembly: Assembly, method: str, request: Any) -> bytes:
    return await assembly.methods[f"/pinnace.v1.{method}"].call(request, Caller(PEOPLE["admin"]))


def asked(assembly: Assembly, method: str, *objs: Any, batch: bool = False) -> Any:
    request: Any = assembly.methods[f"/pinnace.v1.{method}"].parse(b"")
    if batch:
        request.items.extend(objs)
    else:
        request.object.CopyFrom(objs[0])
    return request


def nameless() -> Pod:
    pod = make_pod("", namespace=OWN).req(cpu="1").new()
    pod.metadata.generateName = "web-"
    return pod


@pytest.fixture
def two_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that the server ever thinks of, in turn."""
    names = iter(["aaaaa", "aaaaa", "bbbbb"] + ["aaaaa", "bbbbb"] * 100)
    monkeypatch.setattr(random.Random, "choices", lambda self, alphabet, k: next(names))


@pytest.mark.usefixtures("two_names")
async def test_name_that_is_taken_is_made_up_again() -> None:
    async with serving() as assembly:
        first = Pod.FromString(await call(assembly, "Pods/Create", asked(assembly, "Pods/Create", nameless())))
        second = Pod.FromString(await call(assembly, "Pods/Create", asked(assembly, "Pods/Create", nameless())))
        assert [first.metadata.name, second.metadata.name] == ["web-aaaaa", "web-bbbbb"]
        assert first.metadata.uid != second.metadata.uid
        with pytest.raises(Rejected) as caught:
            await call(assembly, "Pods/Create", asked(assembly, "Pods/Create", nameless()))
        assert caught.value.refusal.reason == "AlreadyExists"


@pytest.mark.usefixtures("two_names")
async def test_in_a_batch_too_and_names_that_were_given_stay() -> None:
    async with serving() as assembly:
        given = make_pod("web-given", namespace=OWN).req(cpu="1").new()
        request = asked(assembly, "Pods/CreateBatch", nameless(), given, given, nameless(), batch=True)
        items = BatchResponse.FromString(await call(assembly, "Pods/CreateBatch", request)).items
        assert [item.name for item in items] == ["web-aaaaa", "web-given", "", "web-bbbbb"]
        stored = Pod.FromString(await call(assembly, "Pods/Get", GetRequest(namespace=OWN, name="web-bbbbb")))
        assert stored.metadata.uid == items[3].uid


def counting_job(name: str = "", prefix: str = "") -> Job:
    job = Job()
    job.metadata.namespace, job.metadata.name, job.metadata.generateName = OWN, name, prefix
    job.spec.template.spec.restartPolicy = "Never"
    job.spec.template.spec.containers.add(name="c", image="i")
    return job


@pytest.mark.usefixtures("two_names")
async def test_generated_name_is_copied_to_other_fields() -> None:
    async with serving() as assembly:
        for suffix in ("aaaaa", "bbbbb"):
            made = await call(assembly, "Jobs/Create", asked(assembly, "Jobs/Create", counting_job(prefix="work-")))
            job = Job.FromString(made)
            labels = job.spec.template.metadata.labels
            assert job.metadata.name == labels["job-name"] == job.metadata.labels["job-name"] == f"work-{suffix}"
            assert job.metadata.uid == labels["controller-uid"]
            assert list(job.spec.selector.matchLabels.values()) == [job.metadata.uid]


@pytest.mark.usefixtures("two_names")
async def test_namespace_whose_name_was_taken_is_found_by_the_one_that_it_got() -> None:
    async with serving() as assembly:
        for suffix in ("aaaaa", "bbbbb"):
            wanted = Namespace()
            wanted.metadata.generateName = "team-"
            made = Namespace.FromString(await call(assembly, "Namespaces/Create", asked(assembly, "Namespaces/Create", wanted)))
            assert made.metadata.name == made.metadata.labels["kubernetes.io/metadata.name"] == f"team-{suffix}"


async def test_validation_errors_do_not_mention_server_defaults() -> None:
    """What is refused is admitted a second time, in case that the caches were behind: under the uid that it has been given."""
    job = counting_job("work")
    job.spec.backoffLimit = -1
    job.metadata.uid = "mine"
    async with serving() as assembly:
        with pytest.raises(Rejected) as caught:
            await call(assembly, "Jobs/Create", asked(assembly, "Jobs/Create", job))
        assert [violation.field for violation in caught.value.refusal.violations] == ["spec.backoffLimit"]
        job.spec.backoffLimit = 1
        made = Job.FromString(await call(assembly, "Jobs/Create", asked(assembly, "Jobs/Create", job)))
        assert made.metadata.uid not in ("", "mine")


@pytest.mark.parametrize(
    ("service", "obj"),
    [("Leases", Lease()), ("PodDisruptionBudgets", PodDisruptionBudget()), ("CSINodes", CSINode())],
)
async def test_some_updates_must_say_which_version_they_change(service: str, obj: Any) -> None:
    """Who renews a lease must not take it from another unawares."""
    obj.metadata.name, obj.metadata.namespace = "a", "" if service == "CSINodes" else OWN
    async with serving() as assembly:
        stored = type(obj).FromString(await call(assembly, f"{service}/Create", asked(assembly, f"{service}/Create", obj)))
        stored.metadata.labels["x"] = "1"
        assert await call(assembly, f"{service}/Update", asked(assembly, f"{service}/Update", stored))
        for unsaid in ("", "0"):
            stored.metadata.resourceVersion = unsaid
            with pytest.raises(Rejected, match=r"metadata\.resourceVersion: Invalid value: 0: must be specified for an update"):
                await call(assembly, f"{service}/Update", asked(assembly, f"{service}/Update", stored))


async def test_last_write_without_precondition_wins() -> None:
    async with serving() as assembly:
        node = Node.FromString(await call(assembly, "Nodes/Get", GetRequest(name=OWN_NODE)))
        for unsaid, value in (("", "1"), ("", "2"), ("0", "3")):
            node.metadata.resourceVersion, node.metadata.labels["x"] = unsaid, value
            updated = Node.FromString(await call(assembly, "Nodes/Update", asked(assembly, "Nodes/Update", node)))
            assert updated.metadata.labels["x"] == value


async def test_dry_run_has_made_no_version_and_what_it_shows_can_be_created() -> None:
    async with serving() as assembly:
        request = asked(assembly, "Pods/Create", make_pod("new", namespace=OWN).req(cpu="1").new())
        request.options.dryRun[:] = ["All"]
        shown = Pod.FromString(await call(assembly, "Pods/Create", request))
        assert shown.metadata.resourceVersion == ""
        shown.metadata.resourceVersion = "0"  # in Kubernetes as good as none
        made = Pod.FromString(await call(assembly, "Pods/Create", asked(assembly, "Pods/Create", shown)))
        stored = Pod.FromString(await call(assembly, "Pods/Get", GetRequest(namespace=OWN, name="new")))
        assert made.metadata.resourceVersion == stored.metadata.resourceVersion != "0"
        made.metadata.name = "other"
        with pytest.raises(Rejected, match="resourceVersion should not be set on objects to be created"):
            await call(assembly, "Pods/Create", asked(assembly, "Pods/Create", made))


async def test_deletion_grace_period_of_an_update_is_ignored() -> None:
    """A live object has no such time: an update may not give it one."""
    async with serving() as assembly:
        node = Node.FromString(await call(assembly, "Nodes/Get", GetRequest(name=OWN_NODE)))
        node.metadata.deletionGracePeriodSeconds = 7
        node.metadata.labels["x"] = "1"
        updated = Node.FromString(await call(assembly, "Nodes/Update", asked(assembly, "Nodes/Update", node)))
        assert updated.metadata.labels["x"] == "1"
        assert not updated.metadata.HasField("deletionGracePeriodSeconds")


async def test_owner_that_is_named_twice_is_one() -> None:
    """Whoever adds an owner without looking may do so again and again; two that are the controller would be refused."""
    owner = OwnerReference(apiVersion="apps/v1", kind="ReplicaSet", name="r", uid="1", controller=True)
    other = OwnerReference(apiVersion="apps/v1", kind="ReplicaSet", name="s", uid="2", controller=False)
    unsaid = OwnerReference(apiVersion="apps/v1", kind="ReplicaSet", name="s", uid="2")
    pod = make_pod("owned", namespace=OWN).req(cpu="1").new()
    pod.metadata.ownerReferences.extend([owner, other, owner, unsaid, other])
    said = "metadata.ownerReferences: duplicate entries were dropped; duplicate UID(s): "
    async with serving() as assembly:
        with collect_warnings() as warnings:
            made = Pod.FromString(await call(assembly, "Pods/Create", asked(assembly, "Pods/Create", pod)))
        assert list(made.metadata.ownerReferences) == [owner, other, unsaid]
        assert list(warnings) == [f"{said}1, 2"]
        made.metadata.ownerReferences.append(other)
        with collect_warnings() as warnings:
            same = Pod.FromString(await call(assembly, "Pods/Update", asked(assembly, "Pods/Update", made)))
        assert list(same.metadata.ownerReferences) == [owner, other, unsaid] and list(warnings) == [f"{said}2"]
        assert same.metadata.resourceVersion == made.metadata.resourceVersion


async def test_namespace_of_what_is_in_none_is_passed_over() -> None:
    """It was when a node was created, but not when it was changed."""
    async with serving() as assembly:
        node = Node.FromString(await call(assembly, "Nodes/Get", GetRequest(name=OWN_NODE)))
        node.metadata.namespace, node.metadata.labels["x"] = OWN, "1"
        updated = Node.FromString(await call(assembly, "Nodes/Update", asked(assembly, "Nodes/Update", node)))
        assert (updated.metadata.namespace, updated.metadata.labels["x"]) == ("", "1")
        patch = json.dumps({"metadata": {"namespace": OWN, "labels": {"x": "2"}}}).encode()
        for kind in (PatchRequest.MERGE, PatchRequest.STRATEGIC_MERGE):
            request = PatchRequest(name=OWN_NODE, type=kind, patch=patch)
            patched = Node.FromString(await call(assembly, "Nodes/Patch", request))
            assert (patched.metadata.namespace, patched.metadata.labels["x"]) == ("", "2")


async def test_slice_with_other_endpoints_is_another_generation() -> None:
    """It has no spec; whoever looks only at new generations would miss all that happens to it."""

    def label(obj: EndpointSlice) -> None:
        obj.metadata.labels["kubernetes.io/service-name"] = "web"

    def annotate(obj: EndpointSlice) -> None:
        obj.metadata.annotations["a"] = "b"

    async with serving() as assembly:
        obj = EndpointSlice(addressType="IPv4")
        obj.metadata.name, obj.metadata.namespace = "web", OWN
        create = asked(assembly, "EndpointSlices/Create", obj)
        obj = EndpointSlice.FromString(await call(assembly, "EndpointSlices/Create", create))
        generations = [obj.metadata.generation]
        for change in (
            annotate,
            label,
            lambda obj: obj.endpoints.add(addresses=["10.0.0.1"]),
            lambda obj: obj.ports.add(port=80),
        ):
            change(obj)
            update = asked(assembly, "EndpointSlices/Update", obj)
            obj = EndpointSlice.FromString(await call(assembly, "EndpointSlices/Update", update))
            generations.append(obj.metadata.generation)
        assert generations == [1, 1, 2, 3, 4]


async def test_metadata_that_has_no_meaning_here_is_cleared_on_create_and_update() -> None:
    """kubernetes#90066: manifests that were exported from a real cluster have it."""
    async with serving() as assembly:
        sent = make_pod("exported", namespace=OWN).req(cpu="1").new()
        sent.metadata.selfLink = "/api/v1/namespaces/default/pods/exported"
        sent.metadata.managedFields.add(manager="kubectl", operation="Update")
        for verb in ("Create", "Update"):
            method = f"Pods/{verb}"
            stored = Pod.FromString(await call(assembly, method, asked(assembly, method, sent)))
            assert (stored.metadata.selfLink, list(stored.metadata.managedFields)) == ("", [])


def test_generation_is_set_on_kinds_of_kubernetes_with_a_generation() -> None:
    kinds = {plural for plural, strategy in STRATEGIES.items() if strategy.has_generation}
    workloads = {"cronjobs", "daemonsets", "deployments", "jobs", "pods", "replicasets", "statefulsets"}
    admission = {"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}
    admission |= {
        f"{kind}admission{plural}" for kind in ("mutating", "validating") for plural in ("policies", "policybindings")
    }
    assert kinds == workloads | admission | {
        "customresourcedefinitions",
        "ingressclasses",
        "ingresses",
        "networkpolicies",
        "endpointslices",
        "poddisruptionbudgets",
        "priorityclasses",
    }


@pytest.mark.parametrize("obj", [ConfigMap(), Lease(), LimitRange(), ResourceQuota(), Secret(), ServiceAccount()])
async def test_objects_without_generation_keep_none_through_create_update_and_delete(obj: Any) -> None:
    service = f"{type(obj).__name__}s"
    obj.metadata.name, obj.metadata.namespace = "a", OWN
    obj.metadata.finalizers.append("example.com/wait")
    async with serving() as assembly:
        stored = type(obj).FromString(await call(assembly, f"{service}/Create", asked(assembly, f"{service}/Create", obj)))
        generations = [stored.metadata.generation]
        stored.metadata.labels["x"] = "1"
        stored = type(obj).FromString(await call(assembly, f"{service}/Update", asked(assembly, f"{service}/Update", stored)))
        generations.append(stored.metadata.generation)
        await call(assembly, f"{service}/Delete", DeleteRequest(namespace=OWN, name="a"))
        stored = type(obj).FromString(await call(assembly, f"{service}/Get", GetRequest(namespace=OWN, name="a")))
        assert stored.metadata.HasField("deletionTimestamp")
        assert [*generations, stored.metadata.generation] == [0, 0, 0]


async def test_generation_of_a_deployment_grows_with_its_spec_and_its_annotations() -> None:
    async with serving() as assembly:
        obj = from_dict(
            DEPLOYMENTS,
            {
                "metadata": {"name": "web", "namespace": OWN},
                "spec": {
                    "selector": {"matchLabels": {"app": "web"}},
                    "template": {
                        "metadata": {"labels": {"app": "web"}},
                        "spec": {"containers": [{"name": "c", "image": "i:1"}]},
                    },
                },
            },
        )
        stored = Deployment.FromString(await call(assembly, "Deployments/Create", asked(assembly, "Deployments/Create", obj)))
        generations = [stored.metadata.generation]
        for field in ("labels", "annotations"):
            getattr(stored.metadata, field)["x"] = "1"
            update = asked(assembly, "Deployments/Update", stored)
            stored = Deployment.FromString(await call(assembly, "Deployments/Update", update))
            generations.append(stored.metadata.generation)
        stored.spec.replicas = 3
        update = asked(assembly, "Deployments/Update", stored)
        stored = Deployment.FromString(await call(assembly, "Deployments/Update", update))
        assert [*generations, stored.metadata.generation] == [1, 1, 2, 3]


async def test_label_keys_are_merged_into_selectors_at_creation_only() -> None:
    """Later changes of the labels change nothing (kubernetes/enhancements 3243 and 3633)."""
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
    both = {"matchLabelKeys": ["rev", "missing"], "mismatchLabelKeys": ["tenant"]}
    required, preferred = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
    spread = term | {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["rev"]}
    data = {
        "metadata": {"name": "a", "namespace": OWN, "labels": {"rev": "1", "tenant": "x"}},
        "spec": {
            "containers": [{"name": "c", "image": "i:1"}],
            "topologySpreadConstraints": [spread],
            "affinity": {
                "podAffinity": {required: [term | both]},
                "podAntiAffinity": {preferred: [{"weight": 1, "podAffinityTerm": term | both}]},
            },
        },
    }
    async with serving() as assembly:
        pod = Pod.FromString(await call(assembly, "Pods/Create", asked(assembly, "Pods/Create", from_dict(PODS, data))))
        pod.metadata.labels["rev"] = "2"
        pod = Pod.FromString(await call(assembly, "Pods/Update", asked(assembly, "Pods/Update", pod)))
    affinity = pod.spec.affinity
    terms = [
        pod.spec.topologySpreadConstraints[0],
        affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0],
        affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm,
    ]
    merged = [
        [
            (match_expression.key, match_expression.operator, list(match_expression.values))
            for match_expression in term.labelSelector.matchExpressions
        ]
        for term in terms
    ]
    same, other = ("rev", "In", ["1"]), ("tenant", "NotIn", ["x"])
    assert merged == [[same], [same, other], [same, other]]
    assert [list(term.matchLabelKeys) for term in terms] == [["rev"], ["rev", "missing"], ["rev", "missing"]]
