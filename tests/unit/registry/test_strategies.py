"""Whatever object a client sends: it is completed, and judged, and nothing breaks."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinnace.api.resources import ALL, Resource
from pinnace.apiserver.registry.strategies import STRATEGIES
from tests.examples import examples
from tests.messages import messages

pytestmark = pytest.mark.slow

every_resource = pytest.mark.parametrize("resource", ALL, ids=lambda resource: resource.plural)


def test_every_resource_has_a_strategy() -> None:
    assert set(STRATEGIES) == {resource.plural for resource in ALL}


def copy(resource: Resource[Any], obj: Any) -> Any:
    result = resource.message()
    result.CopyFrom(obj)
    return result


@every_resource
@given(data=st.data())
@settings(max_examples=examples(12))
def test_any_object_can_be_judged(resource: Resource[Any], data: st.DataObject) -> None:
    strategy = STRATEGIES[resource.plural]
    obj: Any = data.draw(messages(resource.message))
    strategy.prepare_create(obj)
    before = obj.SerializeToString(deterministic=True)
    assert all(violation.field and violation.message for violation in strategy.validate(obj))
    assert obj.SerializeToString(deterministic=True) == before, "judging changes nothing"
    again = copy(resource, obj)
    strategy.prepare_create(again)
    assert again == obj, "defaults are set once"


@every_resource
@given(data=st.data())
@settings(max_examples=examples(12))
def test_any_update_can_be_judged(resource: Resource[Any], data: st.DataObject) -> None:
    strategy = STRATEGIES[resource.plural]
    old: Any = data.draw(messages(resource.message))
    new: Any = data.draw(messages(resource.message))
    strategy.prepare_create(old)
    untouched = copy(resource, old)
    for prepare, validate in (
        (strategy.prepare_update, strategy.validate_update),
        (strategy.prepare_status_update, strategy.validate_status_update),
    ):
        changed = copy(resource, new)
        prepare(changed, old)
        assert all(violation.field and violation.message for violation in validate(changed, old))
        assert old == untouched, "what is stored is not touched"


@every_resource
@given(data=st.data())
@settings(max_examples=examples(10))
def test_sending_the_same_again_changes_nothing(resource: Resource[Any], data: st.DataObject) -> None:
    """The client leaves out status and defaults, as in the manifest that it created the object from."""
    strategy = STRATEGIES[resource.plural]
    sent: Any = data.draw(messages(resource.message))
    stored = copy(resource, sent)
    strategy.prepare_create(stored)
    new = copy(resource, sent)
    strategy.prepare_update(new, stored)
    assert new == stored
