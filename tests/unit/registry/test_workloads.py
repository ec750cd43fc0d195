"""Replica sets, deployments, jobs, and slices of endpoints."""

from typing import Any

import pytest

from pinnace.api.codec import from_dict, to_dict
from pinnace.api.resources import DEPLOYMENTS, ENDPOINT_SLICES, JOBS, REPLICA_SETS, Resource
from tests.unit.registry.objects import CONTAINER, Data, changed, created, status_changed

SELECTOR: Data = {"matchLabels": {"app": "web"}}
FOUND: Data = {"labels": {"app": "web"}}
TEMPLATE: Data = {"metadata": FOUND, "spec": {"containers": [CONTAINER]}}
META: Data = {"name": "web", "namespace": "default", "uid": "uid-web"}
NO_MATCH = 'spec.template.metadata.labels: Invalid value: {"app":"web"}: `selector` does not match template `labels`'
EMPTY = "spec.selector: Invalid value: {}: empty selector is invalid for deployment"

replicated = pytest.mark.parametrize("resource", [DEPLOYMENTS, REPLICA_SETS], ids=lambda resource: resource.plural)


def workload(resource: Resource[Any], **spec: Any) -> Any:
    return from_dict(resource, {"metadata": META, "spec": {"selector": SELECTOR, "template": TEMPLATE} | spec})


def template(metadata: Data | None = None, **spec: Any) -> Data:
    return {"metadata": FOUND | (metadata or {}), "spec": {"containers": [CONTAINER], **spec}}


def stored(resource: Resource[Any], obj: Any) -> Any:
    assert created(resource, obj) == []
    return obj


def job(metadata: Data | None = None, **spec: Any) -> Any:
    run: Data = {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}
    return from_dict(JOBS, {"metadata": META | (metadata or {}), "spec": {"template": run} | spec})


class TestWhatDeploymentsAndReplicaSetsShare:
    @replicated
    def test_template_has_the_defaults_of_templates(self, resource: Resource[Any]) -> None:
        """What admission gives to pods is not in it: the pods get it when they are made."""
        obj = stored(resource, workload(resource))
        spec = to_dict(obj)["spec"]["template"]["spec"]
        assert spec.pop("containers")[0]["imagePullPolicy"] == "IfNotPresent"
        assert spec == {
            "dnsPolicy": "ClusterFirst",
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "terminationGracePeriodSeconds": 30,
        }
        assert obj.spec.replicas == 1

    @replicated
    def test_template_that_leaves_the_hosts_network_leaves_its_ports(self, resource: Resource[Any]) -> None:
        ports = [{"containerPort": 80, "protocol": "TCP"}]
        obj = stored(
            resource, workload(resource, template=template(containers=[CONTAINER | {"ports": ports}], hostNetwork=True))
        )
        assert to_dict(obj)["spec"]["template"]["spec"]["containers"][0]["ports"] == ports

    @replicated
    @pytest.mark.parametrize(
        ("spec", "expected"),
        [
            ({"replicas": 0}, []),
            (
                {
                    "template": template(
                        containers=[CONTAINER | {"ports": [{"containerPort": 80, "hostPort": 81}]}], hostNetwork=True
                    )
                },
                [
                    "spec.template.spec.containers[0].ports[0].hostPort: Invalid value: 81: "
                    "must match `containerPort` when `hostNetwork` is true"
                ],
            ),
            ({"replicas": -1}, ["spec.replicas: Invalid value: -1: must be greater than or equal to 0"]),
            ({"minReadySeconds": -1}, ["spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0"]),
            ({"selector": None}, ["spec.selector: Required value", NO_MATCH]),
            ({"selector": {}}, [EMPTY]),
            ({"selector": {"matchLabels": {"app": "other"}}}, [NO_MATCH]),
            ({"selector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}}, [NO_MATCH]),
            (
                {"selector": {"matchExpressions": [{"key": "app", "operator": "x"}]}},
                [
                    'spec.selector.matchExpressions[0].operator: Invalid value: "x": not a valid selector operator',
                    'spec.selector: Invalid value: {"matchExpressions":[{"key":"app","operator":"x"}]}: invalid label selector',
                ],
            ),
            (
                {"template": template(restartPolicy="Never")},
                ['spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"'],
            ),
            (
                {"template": template(activeDeadlineSeconds=5)},
                ["spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported"],
            ),
            (
                {"template": {"metadata": FOUND, "spec": {"containers": [{"name": "c"}]}}},
                ["spec.template.spec.containers[0].image: Required value"],
            ),
            (
                {"template": template(ephemeralContainers=[{"name": "debug", "image": "app:1"}])},
                ["spec.template.spec.ephemeralContainers: Forbidden: ephemeral containers not allowed in pod template"],
            ),
        ],
    )
    def test_spec(self, resource: Resource[Any], spec: Data, expected: list[str]) -> None:
        assert created(resource, workload(resource, **spec)) == expected

    @replicated
    def test_label_of_the_template_is_wrong_where_it_is(self, resource: Resource[Any]) -> None:
        obj = workload(resource, template=template({"labels": {"app": "web", "a b": "c"}}))
        (violation,) = created(resource, obj)
        assert violation.startswith('spec.template.labels: Invalid value: "a b": name part must consist of')

    @replicated
    def test_selector_stays(self, resource: Resource[Any]) -> None:
        old, both = stored(resource, workload(resource)), {"labels": {"app": "web", "tier": "a"}}
        assert changed(resource, workload(resource, replicas=5, template=template(both)), old) == []
        new = workload(resource, selector={"matchLabels": {"tier": "a"}}, template=template(both))
        assert changed(resource, new, old) == ['spec.selector: Invalid value: {"matchLabels":{"tier":"a"}}: field is immutable']

    @replicated
    @pytest.mark.parametrize(
        ("status", "expected"),
        [
            ({"replicas": 2, "readyReplicas": 2, "availableReplicas": 1, "observedGeneration": 3}, []),
            ({"observedGeneration": -1}, ["status.observedGeneration: Invalid value: -1: must be greater than or equal to 0"]),
            ({"readyReplicas": 1}, ["status.readyReplicas: Invalid value: 1: cannot be greater than status.replicas"]),
            (
                {"replicas": 1, "availableReplicas": 1},
                ["status.availableReplicas: Invalid value: 1: cannot be greater than readyReplicas"],
            ),
            (
                {"terminatingReplicas": -1},
                ["status.terminatingReplicas: Invalid value: -1: must be greater than or equal to 0"],
            ),
        ],
    )
    def test_status_is_apart(self, resource: Resource[Any], status: Data, expected: list[str]) -> None:
        old = stored(resource, workload(resource))
        new = from_dict(resource, {"metadata": META, "status": status})
        assert status_changed(resource, new, old) == expected
        assert (new.spec, new.metadata) == (old.spec, old.metadata)
        again = workload(resource, replicas=7)
        again.status.replicas = 5
        assert changed(resource, again, old) == [] and again.status == old.status


class TestDeployments:
    def test_defaults(self) -> None:
        spec = to_dict(stored(DEPLOYMENTS, workload(DEPLOYMENTS)))["spec"]
        assert spec["strategy"] == {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}, "type": "RollingUpdate"}
        assert (spec["revisionHistoryLimit"], spec["progressDeadlineSeconds"]) == (10, 600)

    @pytest.mark.parametrize(
        ("rolling", "expected"),
        [
            ({"maxSurge": 1, "maxUnavailable": 0}, []),
            ({"maxSurge": "200%"}, []),
            ({"maxSurge": 0}, []),
            ({"maxSurge": -1}, ["maxSurge: Invalid value: -1: must be greater than or equal to 0"]),
            ({"maxUnavailable": "101%"}, ['maxUnavailable: Invalid value: "101%": must not be greater than 100%']),
            (
                {"maxSurge": 0, "maxUnavailable": 0},
                ["maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0"],
            ),
            (
                {"maxSurge": "0%", "maxUnavailable": "00%"},
                ['maxUnavailable: Invalid value: "00%": may not be 0 when `maxSurge` is 0'],
            ),
            (
                {"maxSurge": "9" * 12 + "%"},
                ['maxSurge: Invalid value: "999999999999%": must not be greater than 2147483647%'],
            ),
        ],
    )
    def test_rolling_update_gets_somewhere(self, rolling: Data, expected: list[str]) -> None:
        result = created(DEPLOYMENTS, workload(DEPLOYMENTS, strategy={"rollingUpdate": rolling}))
        assert result == [f"spec.strategy.rollingUpdate.{item}" for item in expected]

    @pytest.mark.parametrize(
        ("spec", "expected"),
        [
            ({"strategy": {"type": "Recreate"}}, []),
            (
                {"strategy": {"type": "Recreate", "rollingUpdate": {}}},
                ["spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"],
            ),
            (
                {"strategy": {"type": "x"}},
                ['spec.strategy.type: Unsupported value: "x": supported values: "Recreate", "RollingUpdate"'],
            ),
            (
                {"minReadySeconds": 5, "progressDeadlineSeconds": 5},
                ["spec.progressDeadlineSeconds: Invalid value: 5: must be greater than minReadySeconds"],
            ),
            (
                {"revisionHistoryLimit": -1},
                ["spec.revisionHistoryLimit: Invalid value: -1: must be greater than or equal to 0"],
            ),
        ],
    )
    def test_spec(self, spec: Data, expected: list[str]) -> None:
        assert created(DEPLOYMENTS, workload(DEPLOYMENTS, **spec)) == expected

    def test_collisions_are_not_forgotten(self) -> None:
        old = stored(DEPLOYMENTS, workload(DEPLOYMENTS))
        old.status.collisionCount = 2
        new = from_dict(DEPLOYMENTS, {"metadata": META, "status": {"collisionCount": 1}})
        assert status_changed(DEPLOYMENTS, new, old) == ["status.collisionCount: Invalid value: 1: cannot be decremented"]


class TestJobs:
    def test_defaults(self) -> None:
        spec = to_dict(stored(JOBS, job()))["spec"]
        numbers = {name: spec[name] for name in ("parallelism", "completions", "backoffLimit", "suspend", "manualSelector")}
        assert numbers == {"parallelism": 1, "completions": 1, "backoffLimit": 6, "suspend": False, "manualSelector": False}
        assert (spec["completionMode"], spec["podReplacementPolicy"]) == ("NonIndexed", "TerminatingOrFailed")
        assert not stored(JOBS, job(parallelism=3)).spec.HasField("completions")

    def test_its_pods_are_found_by_its_uid(self) -> None:
        obj = stored(JOBS, job())
        labels = {
            "batch.kubernetes.io/controller-uid": "uid-web",
            "batch.kubernetes.io/job-name": "web",
            "controller-uid": "uid-web",
            "job-name": "web",
        }
        assert dict(obj.spec.template.metadata.labels) == dict(obj.metadata.labels) == labels
        assert to_dict(obj.spec.selector) == {"matchLabels": {"batch.kubernetes.io/controller-uid": "uid-web"}}

    def test_labels_that_are_the_servers_to_set_cannot_be_others(self) -> None:
        run = {"metadata": {"labels": {"job-name": "other"}}, "spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}
        path = "spec.template.metadata.labels[job-name]"
        assert created(JOBS, job(template=run)) == [f"{path}: Invalid value: \"other\": must be 'web'"]

    @pytest.mark.parametrize(
        "selector",
        [SELECTOR, {"matchExpressions": [{"key": "app", "operator": "Exists"}]}, {"matchLabels": {"controller-uid": "other"}}],
    )
    def test_selector_that_is_not_the_servers_must_be_said_to_be_by_hand(self, selector: Data) -> None:
        """Else it would seem to decide which pods are the job's."""
        result = created(JOBS, job(selector=selector, template=template(restartPolicy="Never")))
        assert [
            item for item in result if item.startswith("spec.selector: ") and item.endswith("`selector` not auto-generated")
        ]
        assert stored(JOBS, job(selector={"matchLabels": {"controller-uid": "uid-web"}}))

    def test_selector_by_hand(self) -> None:
        by_hand = {"manualSelector": True, "selector": SELECTOR}
        no_labels = NO_MATCH.replace('{"app":"web"}', "null")
        result = template(restartPolicy="OnFailure")
        assert not {"job-name"} & set(stored(JOBS, job(**by_hand, template=result)).spec.template.metadata.labels)
        assert created(JOBS, job(manualSelector=True)) == ["spec.selector: Required value", no_labels]
        assert created(JOBS, job(**by_hand)) == [no_labels]

    @pytest.mark.parametrize(
        ("spec", "expected"),
        [
            ({"backoffLimit": -1}, ["spec.backoffLimit: Invalid value: -1: must be greater than or equal to 0"]),
            (
                {"template": template()},
                ['spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'],
            ),
            ({"completionMode": "Indexed", "completions": 3}, []),
            (
                {"completionMode": "Indexed", "parallelism": 3},
                ["spec.completions: Required value: when completion mode is Indexed"],
            ),
            (
                {"completionMode": "x"},
                ['spec.completionMode: Unsupported value: "x": supported values: "NonIndexed", "Indexed"'],
            ),
            (
                {"podReplacementPolicy": "x"},
                ['spec.podReplacementPolicy: Unsupported value: "x": supported values: "Failed", "TerminatingOrFailed"'],
            ),
        ],
    )
    def test_spec(self, spec: Data, expected: list[str]) -> None:
        assert created(JOBS, job(**spec)) == expected

    @pytest.mark.parametrize(
        ("name", "completions", "last"),
        [("a.b", 1, "a.b-0"), ("a" * 61, 10, None), ("a" * 61, 11, "a" * 61 + "-10"), ("a.b", 0, None)],
    )
    def test_host_name_of_each_index_is_one(self, name: str, completions: int, last: str | None) -> None:
        """Else no pod of it can be made, for ever."""
        detail = f'metadata.name: Invalid value: "{name}": will not able to create pod with invalid DNS label: {last}'
        assert created(JOBS, job({"name": name}, completionMode="Indexed", completions=completions)) == [detail] * (
            last is not None
        )

    @pytest.mark.parametrize(
        ("before", "after", "expected"),
        [
            ({}, {"suspend": True, "backoffLimit": 1, "parallelism": 2, "completions": 1}, []),
            ({}, {"template": template(restartPolicy="Never")}, ["spec.template: Forbidden: field is immutable"]),
            ({}, {"completions": 2}, ["spec.completions: Invalid value: 2: field is immutable"]),
            (
                {"completionMode": "Indexed", "completions": 2, "parallelism": 2},
                {"completionMode": "Indexed", "completions": 3, "parallelism": 3},
                [],
            ),
            (
                {"completionMode": "Indexed", "completions": 2},
                {"completionMode": "Indexed", "completions": 3},
                ["spec.completions: Invalid value: 3: can only be modified in tandem with spec.parallelism"],
            ),
            (
                {},
                {"completionMode": "Indexed", "completions": 1},
                ['spec.completionMode: Invalid value: "Indexed": field is immutable'],
            ),
        ],
    )
    def test_started_job_is_immutable(self, before: Data, after: Data, expected: list[str]) -> None:
        assert changed(JOBS, job(**after), stored(JOBS, job(**before))) == expected


class TestEndpointSlices:
    def slice(self, **fields: Any) -> Any:
        data = {"metadata": META, "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}]}
        return from_dict(ENDPOINT_SLICES, data | fields)

    def test_defaults(self) -> None:
        obj = stored(ENDPOINT_SLICES, self.slice(ports=[{"port": 80}]))
        assert to_dict(obj)["ports"] == [{"name": "", "port": 80, "protocol": "TCP"}]

    @pytest.mark.parametrize(
        ("fields", "expected"),
        [
            ({"endpoints": []}, []),
            ({"addressType": ""}, ["addressType: Required value"]),
            ({"addressType": "x"}, ['addressType: Unsupported value: "x": supported values: "FQDN", "IPv4", "IPv6"']),
            ({"addressType": "FQDN", "endpoints": [{"addresses": ["a.example.com", "a.example.com."]}]}, []),
            (
                {"addressType": "FQDN", "endpoints": [{"addresses": ["localhost"]}]},
                [
                    'endpoints[0].addresses[0]: Invalid value: "localhost": '
                    "should be a domain with at least two segments separated by dots"
                ],
            ),
            (
                {"addressType": "IPv6"},
                ['endpoints[0].addresses[0]: Invalid value: "10.0.0.1": must be an IPv6 address'],
            ),
            ({"endpoints": [{}]}, ["endpoints[0].addresses: Required value: must contain at least 1 address"]),
            (
                {"endpoints": [{"addresses": ["10.0.0.1"] * 101}]},
                ["endpoints[0].addresses: Too many: 101: must have at most 100 items"],
            ),
            (
                {"endpoints": [{"addresses": ["10.0.0.1"]}] * 1001},
                ["endpoints: Too many: 1001: must have at most 1000 items"],
            ),
            ({"ports": [{"port": 80}, {"port": 81}]}, ['ports[1].name: Duplicate value: ""']),
            ({"ports": [{"port": 0}]}, ["ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"]),
            (
                {"ports": [{"protocol": "x"}]},
                ['ports[0].protocol: Unsupported value: "x": supported values: "SCTP", "TCP", "UDP"'],
            ),
        ],
    )
    def test_fields(self, fields: Data, expected: list[str]) -> None:
        assert created(ENDPOINT_SLICES, self.slice(**fields)) == expected

    def test_type_of_the_addresses_stays(self) -> None:
        old = stored(ENDPOINT_SLICES, self.slice(endpoints=[]))
        new = self.slice(endpoints=[], addressType="IPv6")
        assert changed(ENDPOINT_SLICES, new, old) == ['addressType: Invalid value: "IPv6": field is immutable']
