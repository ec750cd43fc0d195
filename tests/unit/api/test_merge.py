"""The annotation with the last applied configuration. Merge patches are in test_patch."""

import json

from pinnace.api.merge import LAST_APPLIED, with_last_applied


def test_last_applied_configuration_is_stored() -> None:
    desired = {"metadata": {"name": "x", "annotations": {"mine": "1"}}, "spec": {"b": 1, "a": 2}}
    stored = with_last_applied(desired)
    assert json.loads(stored["metadata"]["annotations"][LAST_APPLIED]) == desired
    assert stored["metadata"]["annotations"]["mine"] == "1"
    assert with_last_applied(stored) == stored, "the annotation does not contain itself"


def test_annotation_is_compact_json() -> None:
    stored = with_last_applied({"spec": {"b": 1, "a": 2}})
    assert stored["metadata"]["annotations"][LAST_APPLIED] == '{"spec":{"a":2,"b":1}}'
