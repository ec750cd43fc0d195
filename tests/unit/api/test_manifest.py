"""Manifests: objects with their lines, and all errors of a file."""

from pathlib import Path
from typing import Any

import pytest

from pinnace.api.manifest import ManifestError, load
from pinnace.api.resources import ALL, PODS

KINDS = ", ".join(resource.kind for resource in ALL)
POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: web
    image: nginx:1.27
    resources:
      requests: {cpu: 100m, memory: 64Mi}
"""
EXAMPLES = Path(__file__).parents[3] / "examples"


def wrong(text: str, **options: Any) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        load(text, "pods.yaml", **options)
    assert str(caught.value) == "\n".join(caught.value.problems)
    return list(caught.value.problems)


def test_single_pod() -> None:
    (manifest,) = load(POD, "pods.yaml")
    assert (manifest.resource.plural, manifest.source, manifest.line) == ("pods", "pods.yaml", 1)
    assert manifest.obj.metadata.name == "web"


def test_manifest_is_kept_as_json() -> None:
    (manifest,) = load(POD.replace("cpu: 100m", "cpu: 1") + "  hostNetwork: false\n", "pods.yaml")
    assert manifest.written == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {
            "containers": [
                {"name": "web", "image": "nginx:1.27", "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}},
            ],
            "hostNetwork": False,
        },
    }


def test_documents_keep_their_order() -> None:
    text = POD + "---\n# a comment\n---\n" + POD.replace("web", "b")
    assert [(m.obj.metadata.name, m.line) for m in load(text, "x")] == [("web", 1), ("b", 14)]


@pytest.mark.parametrize("kind", ["List", "PodList"])
def test_list_is_flattened(kind: str) -> None:
    items = "".join(f"- apiVersion: v1\n  kind: Pod\n  metadata: {{name: {name}}}\n" for name in "ab")
    text = f"apiVersion: v1\nkind: {kind}\nitems:\n{items}"
    assert [(m.obj.metadata.name, m.line) for m in load(text, "x")] == [("a", 4), ("b", 7)]


def test_nested_lists_are_flattened() -> None:
    inner = "{apiVersion: v1, kind: PodList, items: [{metadata: {name: b}}, {metadata: {name: c}}]}"
    text = f"{{kind: List, items: [{{kind: List, items: [{{apiVersion: v1, kind: Pod, metadata: {{name: a}}}}]}}, {inner}]}}"
    assert [(item.resource, item.obj.metadata.name) for item in load(text, "x.yaml")] == [(PODS, name) for name in "abc"]


@pytest.mark.parametrize("text", ["{kind: List, items: null}", "{kind: PodList, items: []}"])
def test_empty_list_has_no_objects(text: str) -> None:
    assert load(text, "x.yaml") == []


@pytest.mark.parametrize("kind", ["List", "PodList"])
def test_list_without_items_is_refused(kind: str) -> None:
    """Otherwise its objects would be ignored silently."""
    (told,) = wrong(f"apiVersion: v1\nkind: {kind}\nitmes: []\n")
    assert told.startswith("pods.yaml:2: kind: ")


def test_every_kind_can_be_loaded() -> None:
    text = "---\n".join(f"apiVersion: {r.api_version}\nkind: {r.kind}\nmetadata: {{name: a}}\n" for r in ALL)
    assert [manifest.resource for manifest in load(text, "x")] == list(ALL)


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n---\n", "~"])
def test_empty_text_contains_no_object(text: str) -> None:
    assert load(text, "x") == []


def test_misspelt_field_is_reported_with_line_and_suggestion() -> None:
    text = POD + "  tolerations:\n  - key: gpu\n    operator: Exists\n    efect: NoSchedule\n"
    assert wrong(text) == ['pods.yaml:14: spec.tolerations[0].efect: unknown field; did you mean "effect"?']


def test_errors_are_reported_in_line_order() -> None:
    text = (
        POD.replace("100m", "100q").replace("name: web\nspec", "name: 7\nspec")
        + "    image: twice\n"
        + "  hostNetwork: 'yes'\n"
        + "---\napiVersion: v1\nkind: Pot\n"
    )
    assert wrong(text) == [
        "pods.yaml:4: metadata.name: expected a string, got a number (7); put it in quotes",
        'pods.yaml:10: spec.containers[0].resources.requests[cpu]: "100q" is not a quantity; expected a number with an '
        "optional suffix, e.g. 500m or 1.5Gi",
        'pods.yaml:11: "image" is duplicated; first defined on line 8',
        'pods.yaml:12: spec.hostNetwork: expected true or false, got a string ("yes")',
        f'pods.yaml:15: kind: unknown kind "Pot"; did you mean "Pod"? (supported: {KINDS})',
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- a\n", "1: not an object: expected apiVersion and kind"),
        ("a: 1\n", f"1: kind: required; supported: {KINDS}"),
        ("kind: Pod\n", '1: apiVersion: required; the apiVersion of Pod is "v1"'),
        ("kind: Pod\napiVersion: v2\n", '2: apiVersion: "v2" has no kind "Pod"; expected "v1"'),
        (
            "apiVersion: v1\nkind: PriorityClass\n",
            '1: apiVersion: "v1" has no kind "PriorityClass"; expected "scheduling.k8s.io/v1"',
        ),
        ("apiVersion: v1\nkind: Xyzzy\n", f'2: kind: unknown kind "Xyzzy" (supported: {KINDS})'),
        (
            "apiVersion: flowcontrol.apiserver.k8s.io/v1\nkind: FlowSchema\n",
            "2: kind: pinnace has no FlowSchemas: flow control is the API servers' own",
        ),
        ("apiVersion: v1\nkind: Pod\nmetadata:\n  labels: {}\n", "3: metadata.name: required, or metadata.generateName"),
        ("kind: List\nitems:\n- kind: Pod\n", '3: apiVersion: required; the apiVersion of Pod is "v1"'),
        ("kind: List\nitems: [7]\n", "2: not an object: expected apiVersion and kind"),
        ("a: [\n", "2: invalid YAML: while parsing a flow node, did not find expected node content"),
    ],
)
def test_non_object_is_refused_with_a_reason(text: str, problem: str) -> None:
    assert wrong(text) == [f"pods.yaml:{problem}"]


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [("labels: {}", "required"), ("generateName: web-", "required; use `pinnace create` for objects with generateName")],
)
def test_generate_name_is_refused_where_a_name_is_required(metadata: str, problem: str) -> None:
    with pytest.raises(ManifestError) as caught:
        load(f"apiVersion: v1\nkind: Pod\nmetadata: {{{metadata}}}\n", "x", named=True)
    assert caught.value.problems == (f"x:3: metadata.name: {problem}",)


def test_name_validation_ignores_other_fields() -> None:
    text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: b, labels: 7}\nspec: {containers: [{cpu: 5x}]}\n"
    (result,) = load(text, "x", validate="name", named=True)
    assert (result.obj.metadata.name, result.obj.metadata.namespace) == ("a", "b")
    with pytest.raises(ManifestError):
        load(text, "x", validate="ignore")


def test_generate_name_is_accepted() -> None:
    assert load(POD.replace("name: web\nspec", "generateName: web-\nspec"), "x")[0].obj.metadata.generateName == "web-"


def test_errors_before_a_syntax_error_are_reported() -> None:
    assert [line.split(":")[1] for line in wrong("kind: Pot\n---\na: [\n")] == ["1", "4"]


def test_unknown_fields_can_be_ignored() -> None:
    text = POD.replace("image:", "imagine: 1\n    image:")
    assert wrong(text) == ['pods.yaml:8: spec.containers[0].imagine: unknown field; did you mean "image"?']
    assert load(text, "x", validate="ignore")[0].obj == load(POD, "x")[0].obj


def test_unknown_fields_are_warnings_on_request() -> None:
    text = POD.replace("image:", "imagine: 1\n    image:")
    (result,) = load(text, "pods.yaml", validate="warn")
    assert result.warnings == ('pods.yaml:8: unknown field "spec.containers[0].imagine"',)
    assert result.obj == load(POD, "x")[0].obj


def test_object_exported_from_a_real_cluster_loads() -> None:
    """kubernetes#90066: fields of metadata and status that the server resets were refused."""
    exported = """
apiVersion: v1
kind: Pod
metadata:
  name: web
  creationTimestamp: null
  selfLink: /api/v1/namespaces/default/pods/web
  managedFields:
  - {manager: kubectl, operation: Update, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {"f:spec": {}}}
spec:
  containers: [{name: c, image: app}]
status:
  phase: Running
  fieldOfTheFuture: 1
  containerStatuses:
  - {name: c, image: app, imageID: "", ready: true, restartCount: 0, user: {linux: {uid: 0, gid: 0}}, other: 2}
"""
    (result,) = load(exported, "x")
    assert result.obj.metadata.managedFields[0].manager == "kubectl"
    with pytest.raises(ManifestError) as caught:
        load(exported.replace("spec:", "specification: 1\nspec:").replace("  name: web", "  name: web\n  labls: {}"), "x")
    assert [problem.split(": ")[1] for problem in caught.value.problems] == ["metadata.labls", "specification"]


def test_examples_load() -> None:
    files = sorted(EXAMPLES.glob("*.yaml"))
    assert files
    for file in files:
        assert load(file.read_text(), file.name)
