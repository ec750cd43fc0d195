"""The fast comparison of statuses agrees with that of JSON forms."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinnace.api.codec import to_dict
from pinnace.api.go_form import complete_form
from pinnace.api.resources import ALL, Resource
from pinnace.api.schema import type_of_resource
from pinnace.api.structured_merge import compare
from pinnace.api.unchanged import unchanged_in_status
from tests.examples import examples
from tests.messages import messages

WITH_STATUS = [resource for resource in ALL if "status" in resource.message.DESCRIPTOR.fields_by_name]


@pytest.mark.parametrize("resource", WITH_STATUS, ids=lambda resource: f"{resource.plural}.{resource.api_version}")
@settings(max_examples=examples(12), deadline=None)
@given(data=st.data())
def test_fast_comparison_agrees_with_comparison_of_forms(resource: Resource[Any], data: st.DataObject) -> None:
    status = resource.message.DESCRIPTOR.fields_by_name["status"].message_type
    assert status is not None
    before, after = data.draw(messages(status._concrete_class)), data.draw(messages(status._concrete_class))
    for field, _ in before.ListFields():
        if data.draw(st.booleans()):
            after.ClearField(field.name)
            after.MergeFrom(_only(before, field.name))
    names = {field.json_name for field, _ in before.ListFields()}
    forms = (complete_form(obj, to_dict(obj)) for obj in (before, after))
    old, new = ({"status": {name: form[name] for name in names if name in form}} for form in forms)
    difference = compare(type_of_resource(resource), old, new)
    present = compare(type_of_resource(resource), {"status": {}}, old).changed
    fields = unchanged_in_status(before, after)
    if fields is not None:
        assert fields.to_json() == (present - difference.modified - difference.removed).to_json()


def _only(message: Any, name: str) -> Any:
    part = type(message)()
    part.CopyFrom(message)
    for field, _ in message.ListFields():
        if field.name != name:
            part.ClearField(field.name)
    return part
