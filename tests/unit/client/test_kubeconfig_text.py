"""Edits of a kubeconfig keep the bytes of everything else."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pinnace.client.kubeconfig import Kind, KubeconfigSyntaxError
from pinnace.client.kubeconfig_text import KubeconfigText

FOREIGN = """\
# mine, by hand
apiVersion: v1
kind: Config
clusters:
  # the one at work
  - name: work   # keep me
    cluster: {server: "https://work.example:6443", insecure-skip-tls-verify: true}

  - cluster:
      server: 'https://127.0.0.1:41234'   # kind
      certificate-authority-data: |
        TFMw
    name: kind-kind
# contexts
contexts:
- {name: work, context: {cluster: work, user: work}}
- context:
    cluster: kind-kind
    user: kind-kind
  name: kind-kind
current-context: "work" # where I was
preferences: {}
users:
- name: work
  user:
    exec: {command: aws, args: [eks, "get-token"], apiVersion: client.authentication.k8s.io/v1}
- name: kind-kind
  user: {token: abc}   # not a secret
# the end
"""
CLUSTER = {"server": "https://127.0.0.1:6443", "extensions": [{"name": "x", "extension": {"servers": ["a:1"], "none": None}}]}
KINDS: tuple[Kind, ...] = ("cluster", "user", "context")


def added(text: str) -> KubeconfigText:
    kubeconfig = KubeconfigText(text)
    kubeconfig.put("cluster", "pinnace", CLUSTER)
    kubeconfig.put("user", "pinnace", {"client-key": "/a b/admin.key"})
    kubeconfig.put("context", "pinnace", {"cluster": "pinnace", "user": "pinnace"})
    kubeconfig.set_current("pinnace")
    return kubeconfig


def removed(kubeconfig: KubeconfigText, current: str | None) -> str:
    for kind in KINDS:
        kubeconfig.remove(kind, "pinnace")
    kubeconfig.set_current(current)
    return kubeconfig.text


@pytest.mark.parametrize(
    "text",
    [
        FOREIGN,
        FOREIGN.replace("\n", "\r\n"),
        "\ufeff" + FOREIGN,
        f"---\n{FOREIGN}...\n",
        FOREIGN.replace("users:\n-", "users:\n\n# first\n-"),
    ],
    ids=["block", "crlf", "bom", "markers", "comment-before-item"],
)
def test_added_and_removed_entries_leave_the_same_bytes(text: str) -> None:
    kubeconfig = added(text)
    lines = iter(kubeconfig.text.splitlines(keepends=True))
    kept = [line for line in text.splitlines(keepends=True) if "current-context" not in line]
    assert all(line in lines for line in kept), "every line of the user, in the same order"
    assert kubeconfig.document["clusters"][-1] == {"name": "pinnace", "cluster": CLUSTER}
    assert kubeconfig.document["current-context"] == "pinnace" and "# where I was" in kubeconfig.text
    assert removed(kubeconfig, "work") == text


def test_missing_last_line_end_is_added() -> None:
    text = FOREIGN.removesuffix("# the end\n").removesuffix("\n")
    assert removed(added(text), "work") == text + "\n"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("", "clusters: []\nusers: []\ncontexts: []\n"),
        ("# only a comment\n", "# only a comment\nclusters: []\nusers: []\ncontexts: []\n"),
        ("clusters: null\nusers:\ncontexts: []  # none\n", "clusters: []\nusers: []\ncontexts: []  # none\n"),
        ('{"clusters": [], "users": [], "contexts": []}', None),
        ('{\n  "clusters": [{"name": "a", "cluster": {}}],\n  "contexts": null\n}\n', None),
        ("clusters: &all\n- name: a\nusers: *all\n", None),
        ("? clusters\n: - name: a\n", None),
        ("clusters: !!seq [{name: a}]\n", None),
    ],
)  # fmt: skip
def test_data_is_correct_for_every_structure(text: str, left: str | None) -> None:
    """Also where the text has to be written again."""
    before = KubeconfigText(text).document
    kubeconfig = added(text)
    result = yaml.safe_load(kubeconfig.text)
    assert result["clusters"][-1] == {"name": "pinnace", "cluster": CLUSTER} and result["current-context"] == "pinnace"
    assert result["clusters"][:-1] == (before.get("clusters") or [])
    end = removed(kubeconfig, None)
    assert (yaml.safe_load(end)["clusters"] or []) == (before.get("clusters") or [])
    assert left is None or end == left


def test_replaced_entry_keeps_its_place_and_unknown_fields() -> None:
    kubeconfig = KubeconfigText(
        "clusters:\n- name: a\n  note: 1\n  cluster: {server: x} # gone\n# kept\n- name: b\n  cluster: {}\n"
    )
    kubeconfig.put("cluster", "a", {"server": "y"})
    assert kubeconfig.text == "clusters:\n- name: a\n  note: 1\n  cluster:\n    server: 'y'\n# kept\n- name: b\n  cluster: {}\n"


def test_equal_values_are_not_written_again() -> None:
    kubeconfig = KubeconfigText(FOREIGN)
    kubeconfig.put("context", "work", {"cluster": "work", "user": "work"})
    kubeconfig.set_current("work")
    kubeconfig.remove("cluster", "gone")
    assert kubeconfig.text == FOREIGN


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: [", 2, "invalid YAML"),
        ("- a", 1, "not a kubeconfig"),
        ("kind: Pod", 1, "not a kubeconfig"),
        ("kind: Config\nkind: Config", 2, "kind"),
        ("clusters: {a: b}", 1, "clusters: not a list"),
        ("kind: Config\n---\nkind: Config", 1, "several documents"),
        ("clusters: [{name: a}, {name: b}, {name: a}]", 1, 'clusters: duplicate name "a"'),
        ("a: 1\nb: " + "[" * 70 + "]" * 70, 2, "nested"),
    ],
)
def test_invalid_text_is_refused(text: str, line: int, message: str) -> None:
    with pytest.raises(KubeconfigSyntaxError, match=message) as caught:
        KubeconfigText(text)
    assert caught.value.line == line


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=8)
ITEMS = st.lists(
    st.tuples(NAMES, st.dictionaries(NAMES, NAMES | st.none() | st.lists(NAMES, max_size=2), max_size=2)), max_size=3
)


@given(ITEMS, ITEMS, NAMES | st.none(), st.booleans(), st.sampled_from([None, True, False]))
def test_any_other_content_is_kept(clusters: Any, users: Any, current: str | None, indent: bool, flow: bool | None) -> None:
    document = {
        "clusters": [{"name": f"c{index}{name}", "cluster": value} for index, (name, value) in enumerate(clusters)],
        "preferences": {},
        "users": [{"user": value, "name": f"u{index}{name}"} for index, (name, value) in enumerate(users)],
        **({"current-context": current} if current is not None else {}),
    }
    text = yaml.safe_dump(document, sort_keys=False, default_flow_style=flow, indent=4 if indent else 2, allow_unicode=True)
    before = KubeconfigText(text).document
    kubeconfig = added(text)
    assert KubeconfigText(kubeconfig.text).document["clusters"][:-1] == before["clusters"]
    after = KubeconfigText(removed(kubeconfig, before.get("current-context"))).document
    assert {**after, "contexts": None} == {**before, "contexts": None}
