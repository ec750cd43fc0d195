"""The compiled writer of fields agrees with the comparison of JSON forms."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinnace.api.field_writer import fields_v1
from pinnace.api.fieldset import FieldSet, field_element
from pinnace.api.ownership import SERVER_FIELDS, all_fields, ownable_fields
from pinnace.api.resources import ALL, Resource
from tests.examples import examples
from tests.messages import messages

SERVER = FieldSet(("f:metadata", field_element(name)) for name in SERVER_FIELDS)


@pytest.mark.parametrize("resource", ALL, ids=lambda resource: resource.plural)
@settings(max_examples=examples(10), deadline=None)
@given(data=st.data())
def test_writer_agrees_with_comparison(resource: Resource[Any], data: st.DataObject) -> None:
    obj = data.draw(messages(resource.message))
    expected = all_fields(resource, ownable_fields(resource, obj))
    assert fields_v1(obj, SERVER) == expected.to_json()
    hidden = data.draw(st.lists(st.sampled_from(paths), max_size=3)) if (paths := list(expected)) else []
    assert fields_v1(obj, SERVER | FieldSet(hidden)) == (expected - FieldSet(hidden)).to_json()
