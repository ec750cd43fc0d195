"""Roles and their bindings."""

from typing import Any

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES, Resource
from tests.unit.registry.objects import Data, changed, created, status_changed

GROUP = "rbac.authorization.k8s.io"
READ: Data = {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}
ADA: Data = {"kind": "User", "name": "ada"}
ROBOT: Data = {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}
VIEW: Data = {"kind": "ClusterRole", "name": "view"}

every_role = pytest.mark.parametrize("resource", [ROLES, CLUSTER_ROLES], ids=lambda item: item.plural)
every_binding = pytest.mark.parametrize("resource", [ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS], ids=lambda item: item.plural)
every_kind = pytest.mark.parametrize(
    "resource", [ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS], ids=lambda item: item.plural
)


def make(resource: Resource[Any], name: str = "a", **fields: Any) -> Any:
    """A sound object, with these fields."""
    if resource in (ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS):
        fields = {"roleRef": VIEW} | fields
    metadata = {"name": name} | ({"namespace": "default"} if resource.namespaced else {})
    return from_dict(resource, {"metadata": metadata, **fields})


@every_kind
class TestNames:
    @pytest.mark.parametrize("name", ["system:node", "Ada Lovelace", "x" * 253])
    def test_role_name_may_be_any_path_segment(self, resource: Resource[Any], name: str) -> None:
        obj = make(resource, name)
        assert created(resource, obj) == []
        assert changed(resource, make(resource, name), obj) == []

    @pytest.mark.parametrize(
        ("name", "problems"),
        [
            ("..", ["may not be '..'"]),
            ("a/b", ["may not contain '/'"]),
            ("../%2e", ["may not contain '/'", "may not contain '%'"]),
            ("x" * 254, ["must be no more than 253 characters"]),
        ],
    )
    def test_role_name_may_not_leave_its_path(self, resource: Resource[Any], name: str, problems: list[str]) -> None:
        shown = name if len(name) < 128 else name[:128] + "..."
        assert created(resource, make(resource, name)) == [
            f'metadata.name: Invalid value: "{shown}": {problem}' for problem in problems
        ]


@every_kind
def test_there_is_no_status(resource: Resource[Any]) -> None:
    assert len(status_changed(resource, make(resource), make(resource))) == 1


@every_role
class TestRoles:
    @pytest.mark.parametrize(
        ("rule", "expected"),
        [
            (READ, []),
            (READ | {"resourceNames": ["a", "b"], "verbs": ["*"], "resources": ["*"], "apiGroups": ["*"]}, []),
            (
                {},
                [
                    "rules[1].verbs: Required value: verbs must contain at least one value",
                    "rules[1].apiGroups: Required value: resource rules must supply at least one api group",
                    "rules[1].resources: Required value: resource rules must supply at least one resource",
                ],
            ),
        ],
    )
    def test_rules(self, resource: Resource[Any], rule: Data, expected: list[str]) -> None:
        assert created(resource, make(resource, rules=[READ, rule])) == expected
        assert changed(resource, make(resource, rules=[READ, rule]), make(resource)) == expected

    @pytest.mark.parametrize(
        ("rules", "combinations"),
        [
            ([{"verbs": ["get"] * 100, "apiGroups": [""] * 10, "resources": ["pods"] * 10}], 10_000),
            ([{"verbs": ["get"] * 101, "apiGroups": [""] * 10, "resources": ["pods"] * 10}], 10_100),
            ([READ | {"resourceNames": ["a"] * 5_000}], 10_000),
            ([READ | {"resourceNames": ["a"] * 5_000}, READ], 10_002),
        ],
    )
    def test_they_are_of_a_number_that_can_be_judged(
        self, resource: Resource[Any], rules: list[Data], combinations: int
    ) -> None:
        """Before somebody gives a role away, it is judged whether he holds what it allows: a rule of a kilobyte can allow a
        million things."""
        detail = 'at most 10,000 combinations of verb, group, resource and name: use "*", or split the role'
        expected = [f"rules: Invalid value: {combinations}: {detail}"] if combinations > 10_000 else []
        assert created(resource, make(resource, rules=rules)) == expected
        assert changed(resource, make(resource, rules=rules), make(resource)) == expected

    def test_role_may_say_nothing(self, resource: Resource[Any]) -> None:
        assert created(resource, make(resource)) == []


class TestPaths:
    """URLs that are no resources."""

    RULE: Data = {"verbs": ["get"], "nonResourceURLs": ["/healthz/*"]}  # noqa: RUF012
    PATH = 'rules[0].nonResourceURLs: Invalid value: ["/healthz/*"]: '

    def test_cluster_role_may_name_them(self) -> None:
        assert created(CLUSTER_ROLES, make(CLUSTER_ROLES, rules=[self.RULE])) == []

    def test_role_may_not(self) -> None:
        expected = [self.PATH + "namespaced rules cannot apply to non-resource URLs"]
        assert created(ROLES, make(ROLES, rules=[self.RULE])) == expected

    @pytest.mark.parametrize("field", ["apiGroups", "resources", "resourceNames"])
    def test_they_do_not_mix_with_resources(self, field: str) -> None:
        expected = [self.PATH + "rules cannot apply to both regular resources and non-resource URLs"]
        assert created(CLUSTER_ROLES, make(CLUSTER_ROLES, rules=[self.RULE | {field: ["a"]}])) == expected


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"clusterRoleSelectors": [{"matchLabels": {"aggregate": "true"}}, {}]}, []),
        (
            {},
            [
                "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if "
                "aggregationRule is non-nil"
            ],
        ),
        (
            {"clusterRoleSelectors": [{}, {"matchExpressions": [{"key": "a", "operator": "x"}]}]},
            [
                'aggregationRule.clusterRoleSelectors[1].matchExpressions[0].operator: Invalid value: "x": not a valid '
                "selector operator"
            ],
        ),
    ],
)
def test_aggregation(rule: Data, expected: list[str]) -> None:
    assert created(CLUSTER_ROLES, make(CLUSTER_ROLES, aggregationRule=rule)) == expected


@every_binding
class TestBindings:
    def test_defaults(self, resource: Resource[Any]) -> None:
        everybody: Data = {"kind": "Group", "name": "system:authenticated"}
        obj = make(resource, subjects=[ADA, everybody, ROBOT])
        assert created(resource, obj) == []
        assert obj.roleRef.apiGroup == GROUP
        assert [subject.apiGroup for subject in obj.subjects] == [GROUP, GROUP, ""]

    def test_update_is_completed_likewise(self, resource: Resource[Any]) -> None:
        old, same = make(resource, subjects=[ADA]), make(resource, subjects=[ADA])
        assert created(resource, old) == []
        assert changed(resource, same, old) == []
        assert same == old

    @pytest.mark.parametrize(
        ("subject", "expected"),
        [
            (ADA | {"apiGroup": "apps"}, [f'subjects[0].apiGroup: Unsupported value: "apps": supported values: "{GROUP}"']),
            (ROBOT | {"apiGroup": GROUP}, [f'subjects[0].apiGroup: Unsupported value: "{GROUP}": supported values: ""']),
            (
                {},
                [
                    "subjects[0].name: Required value",
                    'subjects[0].kind: Unsupported value: "": supported values: "ServiceAccount", "User", "Group"',
                ],
            ),
            (ROBOT | {"name": ""}, ["subjects[0].name: Required value"]),
        ],
    )
    def test_subjects(self, resource: Resource[Any], subject: Data, expected: list[str]) -> None:
        assert created(resource, make(resource, subjects=[subject])) == expected
        assert (
            changed(resource, make(resource, subjects=[subject]), make(resource, roleRef=VIEW | {"apiGroup": GROUP}))
            == expected
        )

    def test_service_accounts_have_dns_names(self, resource: Resource[Any]) -> None:
        (violation,) = created(resource, make(resource, subjects=[ROBOT | {"name": "A:b"}]))
        assert violation.startswith('subjects[0].name: Invalid value: "A:b": a lowercase RFC 1123 subdomain')

    def test_role_is_named_in_full(self, resource: Resource[Any]) -> None:
        kinds = '"Role", "ClusterRole"' if resource is ROLE_BINDINGS else '"ClusterRole"'
        assert created(resource, make(resource, roleRef={"apiGroup": "apps"})) == [
            f'roleRef.apiGroup: Unsupported value: "apps": supported values: "{GROUP}"',
            f'roleRef.kind: Unsupported value: "": supported values: {kinds}',
            "roleRef.name: Required value",
        ]
        assert created(resource, make(resource, roleRef=VIEW | {"name": "a/b"})) == [
            "roleRef.name: Invalid value: \"a/b\": may not contain '/'"
        ]

    def test_role_stays(self, resource: Resource[Any]) -> None:
        old = make(resource, subjects=[ADA])
        assert created(resource, old) == []
        assert changed(resource, make(resource, subjects=[ROBOT]), old) == []
        assert changed(resource, make(resource, roleRef=VIEW | {"name": "edit"}), old) == [
            f'roleRef: Invalid value: {{"apiGroup":"{GROUP}","kind":"ClusterRole","name":"edit"}}: cannot change roleRef'
        ]


def test_only_a_namespace_has_roles_of_its_own() -> None:
    own: Data = {"kind": "Role", "name": "r"}
    assert created(ROLE_BINDINGS, make(ROLE_BINDINGS, roleRef=own)) == []
    assert created(CLUSTER_ROLE_BINDINGS, make(CLUSTER_ROLE_BINDINGS, roleRef=own)) == [
        'roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"'
    ]


def test_where_a_service_account_is() -> None:
    """In a namespace: there, unless it says otherwise. In the cluster it must be said."""
    somewhere: Data = {"kind": "ServiceAccount", "name": "robot"}
    assert created(ROLE_BINDINGS, make(ROLE_BINDINGS, subjects=[somewhere])) == []
    assert created(CLUSTER_ROLE_BINDINGS, make(CLUSTER_ROLE_BINDINGS, subjects=[somewhere])) == [
        "subjects[0].namespace: Required value"
    ]
