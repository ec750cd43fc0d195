import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinnace.api import selectors
from pinnace.api.meta_v1_pb2 import LabelSelector
from pinnace.api.selectors import FIELDS, MAX_REQUIREMENTS, SelectorError, from_message, one_of, parse_fields, parse_labels
from tests.builders import make_pod

POD_FIELDS = FIELDS["pods"]


@pytest.mark.parametrize(
    ("text", "matching", "not_matching"),
    [
        ("", [{}, {"a": "1"}], []),
        ("app=web", [{"app": "web"}, {"app": "web", "x": "y"}], [{}, {"app": "db"}, {"web": "app"}]),
        ("app==web", [{"app": "web"}], [{}, {"app": "db"}]),
        ("app=", [{"app": ""}], [{}, {"app": "x"}]),
        ("app!=web", [{}, {"app": "db"}], [{"app": "web"}]),
        ("app!=", [{}, {"app": "x"}], [{"app": ""}]),
        ("app in (web,db)", [{"app": "web"}, {"app": "db"}], [{}, {"app": "x"}]),
        ("app in (web,)", [{"app": "web"}, {"app": ""}], [{}, {"app": "x"}]),
        ("app notin (web,db)", [{}, {"app": "x"}], [{"app": "web"}, {"app": "db"}]),
        ("app", [{"app": ""}, {"app": "x"}], [{}, {"b": "x"}]),
        ("!app", [{}, {"b": "x"}], [{"app": ""}, {"app": "x"}]),
        ("! app", [{}], [{"app": ""}]),
        ("app=web,tier notin (x),!old", [{"app": "web"}], [{"app": "web", "tier": "x"}, {"app": "web", "old": ""}, {}]),
        (" app = web , tier in ( a , b ) ", [{"app": "web", "tier": "b"}], [{"app": "web"}]),
        ("in in (in,notin)", [{"in": "in"}, {"in": "notin"}], [{"in": "x"}]),
        ("example.com/gpu", [{"example.com/gpu": "2"}], [{"gpu": "2"}]),
        ("a=1,a=2", [], [{"a": "1"}, {"a": "2"}, {}]),
        ("app in ()", [{"app": ""}], [{}, {"app": "x"}]),
        ("app notin ()", [{}, {"app": "x"}], [{"app": ""}]),
        ("rank>5", [{"rank": "6"}, {"rank": "+10"}], [{}, {"rank": "5"}, {"rank": "x"}, {"rank": ""}, {"rank": "6.0"}]),
        (" rank < 5 ,app", [{"rank": "-4", "app": ""}], [{"rank": "4"}, {"rank": "5", "app": ""}]),
        ("rank>1,rank<3", [{"rank": "2"}], [{"rank": "1"}, {"rank": "3"}]),
        ("rank<9223372036854775807", [{"rank": "0"}], [{"rank": "9223372036854775808"}]),
    ],
)
def test_label_selectors_match_as_in_kubernetes(
    text: str, matching: list[dict[str, str]], not_matching: list[dict[str, str]]
) -> None:
    selector = parse_labels(text)
    assert all(selector.matches(labels) for labels in matching)
    assert not any(selector.matches(labels) for labels in not_matching)


def test_matching_adds_no_label() -> None:
    pod = make_pod("a").build()
    assert not parse_labels("app=").matches(pod.metadata.labels)
    assert dict(pod.metadata.labels) == {}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (",", 'expected a name but found ","'),
        ("a=b,", "expected a name but found the end"),
        ("=b", 'expected a name but found "="'),
        ("!", "expected a name but found the end"),
        ("!a=b", 'expected "," but found "="'),
        ("a b", 'expected "=", "==", "!=", "in", "notin", ">" or "<" but found "b"'),
        ("a>", "for 'Gt', 'Lt' operators, the value must be an integer"),
        ("a>x", "for 'Gt', 'Lt' operators, the value must be an integer"),
        ("a<1.5", "for 'Gt', 'Lt' operators, the value must be an integer"),
        ("a>=1", "for 'Gt', 'Lt' operators, the value must be an integer"),
        ("a in b", 'expected "(" but found "b"'),
        ("a in (b", 'expected ")" but found the end'),
        ("a in (b c)", 'expected ")" but found "c"'),
        ("a=b=c", 'expected "," but found "="'),
        ("a=(b)", 'expected "," but found "("'),
        ("-a=b", "key"),
        ("x/y/z=b", "key"),
        ("a" * 64, "key"),
        ("a=" + "b" * 64, "value"),
        ("a=b_", "value"),
        ("a=b\\", "expected a character after"),
        ("a=\\b", "value"),
    ],
)
def test_malformed_label_selector_is_refused_with_a_hint(text: str, complaint: str) -> None:
    with pytest.raises(SelectorError, match=re.escape(complaint)) as caught:
        parse_labels(text)
    assert "example: app=web" in caught.value.hint
    assert str(caught.value).endswith(caught.value.hint)


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("spec.nodeName=n1", True),
        ("spec.nodeName==n1", True),
        ("spec.nodeName!=n1", False),
        ("spec.nodeName=", False),
        ("spec.nodeName in (n0,n1)", True),
        ("spec.nodeName in (n0)", False),
        ("spec.nodeName=n1,status.phase=Pending", True),
        ("spec.nodeName=n1,status.phase!=Pending", False),
        ("metadata.name=a,metadata.namespace=default", True),
        ("spec.schedulerName=default-scheduler", True),
    ],
)
def test_field_selectors_match(text: str, matches: bool) -> None:
    assert parse_fields(text, POD_FIELDS).matches(make_pod("a").node("n1").build()) is matches


def test_field_values_can_be_escaped() -> None:
    event_fields = {"reason": lambda value: value}
    assert parse_fields(r"reason=a\,b\=\\\(\ c", event_fields).matches(r"a,b=\( c")


@pytest.mark.parametrize(
    ("text", "complaint", "hint"),
    [
        ("spec.nodename=a", 'unknown field "spec.nodename"', "spec.nodeName"),
        ("spec.nodeName", 'requires "="', "example:"),
        ("!spec.nodeName", 'requires "="', "example:"),
        ("spec.nodeName notin (a)", 'requires "="', "example:"),
        ("spec.nodeName=a b", 'expected ","', "example:"),
    ],
)
def test_malformed_field_selector_is_refused_with_a_hint(text: str, complaint: str, hint: str) -> None:
    with pytest.raises(SelectorError, match=re.escape(complaint)) as caught:
        parse_fields(text, POD_FIELDS)
    assert hint in caught.value.hint


def test_allowed_values_satisfy_all_requirements() -> None:
    def allowed(text: str) -> frozenset[str] | None:
        return parse_fields(text, POD_FIELDS).allowed("spec.nodeName")

    assert allowed("status.phase=Running") is None
    assert allowed("spec.nodeName!=a") is None
    assert allowed("spec.nodeName=a,spec.nodeName!=b") == {"a"}
    assert allowed("spec.nodeName in (a,b),spec.nodeName in (b,c)") == {"b"}
    assert allowed("spec.nodeName=a,spec.nodeName=b") == frozenset()


def test_equivalent_selectors_are_equal() -> None:
    assert parse_labels("b==2, a in (y,x),c,c") == parse_labels("c,a in (x,y),b=2")
    assert hash(parse_labels("b==2,a")) == hash(parse_labels("a,b=2"))
    assert parse_labels("a=1") != parse_labels("a!=1")
    one = parse_fields("status.phase=Running,spec.nodeName=a", POD_FIELDS)
    assert one == parse_fields("spec.nodeName in (a), status.phase==Running", POD_FIELDS)


LABEL_NAMES = st.sampled_from(["a", "in", "notin", "x.y/z", "A-b_c.d"])
LABEL_VALUES = st.lists(st.sampled_from(["1", "in", "b_c", ""]), min_size=1, max_size=3).filter(lambda values: values != [""])
SIGNS, WORDS, MARKS = (st.sampled_from(item) for item in (["=", "==", "!="], ["in", "notin"], ["", "!"]))
LABEL_TERMS = st.one_of(
    st.builds(lambda name, values, word: f"{name} {word} ({','.join(values)})", LABEL_NAMES, LABEL_VALUES, WORDS),
    st.builds(lambda name, values, sign: f"{name}{sign}{values[0]}", LABEL_NAMES, LABEL_VALUES, SIGNS),
    st.builds(lambda name, mark: f"{mark}{name}", LABEL_NAMES, MARKS),
)


def test_oversized_selectors_are_refused() -> None:
    with pytest.raises(SelectorError, match="at most 32,768 are allowed"):
        parse_labels(",".join(f"k{index}=v" for index in range(10_000)))
    names = ",".join(f"a-node-with-a-long-name-{index}" for index in range(10_000))
    assert parse_fields(f"spec.nodeName in ({names})", POD_FIELDS).allowed("spec.nodeName")
    with pytest.raises(SelectorError, match="at most 524,288 are allowed"):
        parse_fields(f"metadata.name={'x' * 600_000}", POD_FIELDS)


def test_plain_values_are_parsed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Token by token, the node names of a fleet take a third of a second."""
    advance, steps = selectors._Parser._advance, []
    monkeypatch.setattr(selectors._Parser, "_advance", lambda self: steps.append(self) or advance(self))
    names = [f"n{index}" for index in range(1000)]
    selector = parse_fields(f"spec.nodeName in ({','.join(names)}),status.phase!=Failed", POD_FIELDS)
    assert selector.allowed("spec.nodeName") == frozenset(names) and len(selector.requirements) == 2
    assert len(steps) <= 10


@given(
    st.lists(st.sampled_from(["", "a", "in", "b-2"]), min_size=1, max_size=4), st.sampled_from(["", ",c", " ", "=", "(", ")"])
)
def test_blanks_between_values_do_not_matter(values: list[str], more: str) -> None:
    def read(separator: str) -> object:
        try:
            return parse_labels(f"k in ({separator.join(['', ','.join(values).replace(',', separator + ','), ''])}){more}")
        except SelectorError as error:
            return error.message.partition('": ')[2]

    assert read("") == read(" ")


def test_number_of_requirements_is_limited() -> None:
    """Each requirement is evaluated for each object of a list, and for each event of each watch."""
    assert len(parse_labels(",".join(f"!k{index}" for index in range(MAX_REQUIREMENTS))).requirements) == MAX_REQUIREMENTS
    with pytest.raises(SelectorError, match="label selector: at most 100 requirements are allowed; example:"):
        parse_labels(",".join(f"!k{index}" for index in range(MAX_REQUIREMENTS + 1)))
    with pytest.raises(SelectorError, match="field selector: at most 100 requirements are allowed; example:"):
        parse_fields(",".join(f"metadata.name!=a{index}" for index in range(MAX_REQUIREMENTS + 1)), POD_FIELDS)


def test_long_selectors_of_objects_are_not_cached() -> None:
    """The cache has room for thousands of selectors. A parsed selector of 1 KiB needs 20 KiB."""
    message = LabelSelector()
    message.matchExpressions.add(key="app", operator="In", values=[f"v{index}" for index in range(256)])
    selectors._cached_selector.cache_clear()
    assert from_message(message).matches({"app": "v7"}) and not from_message(message).matches({"app": "x"})
    assert selectors._cached_selector.cache_info().currsize == 0


@given(st.lists(LABEL_TERMS, max_size=5))
def test_label_selector_text_round_trip(terms: list[str]) -> None:
    selector = parse_labels(",".join(terms))
    assert parse_labels(str(selector)) == selector


@given(st.lists(st.text("ab,=!()\\ \t"), min_size=1, max_size=3).filter(lambda values: values != [""]))
def test_field_selector_text_round_trip(values: list[str]) -> None:
    escaped = ",".join(re.sub(r"(\W)", r"\\\1", value) for value in values)
    selector = parse_fields(f"spec.nodeName in ({escaped})", POD_FIELDS)
    assert selector.allowed("spec.nodeName") == frozenset(values)
    assert parse_fields(str(selector), POD_FIELDS) == selector


@given(st.lists(st.text(max_size=9), min_size=1, max_size=3))
def test_field_selector_accepts_any_value(values: list[str]) -> None:
    assert parse_fields(one_of("metadata.name", values), POD_FIELDS).allowed("metadata.name") == frozenset(values)


@given(st.text("abn=!,() \\'\n\x00é", max_size=30))
def test_arbitrary_text_is_parsed_or_refused(text: str) -> None:
    for parse in (parse_labels, lambda text: parse_fields(text, POD_FIELDS)):
        try:
            parse(text)
        except SelectorError as error:
            assert error.hint


@pytest.mark.parametrize(
    ("labels", "expressions", "text"),
    [
        ({}, [], ""),
        ({"app": "web", "b": "c"}, [], "app=web,b=c"),
        ({}, [("app", "In", ["web", "db"])], "app in (web,db)"),
        ({"b": "c"}, [("app", "NotIn", ["web"]), ("x", "Exists", []), ("y", "DoesNotExist", [])], "app!=web,b=c,x,!y"),
    ],
)
def test_selector_messages_equal_their_text(
    labels: dict[str, str], expressions: list[tuple[str, str, list[str]]], text: str
) -> None:
    message = LabelSelector(matchLabels=labels)
    for key, operator, values in expressions:
        message.matchExpressions.add(key=key, operator=operator, values=values)
    assert from_message(message) == parse_labels(text)


@pytest.mark.parametrize("labels", [{}, {"app": "web"}])
def test_malformed_selector_matches_nothing(labels: dict[str, str]) -> None:
    message = LabelSelector()
    message.matchExpressions.add(key="app", operator="Near", values=["web"])
    assert not from_message(message).matches(labels)
