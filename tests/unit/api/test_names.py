"""The syntax of names: valid and invalid texts, messages, and the time of a check."""

import time
from collections.abc import Callable

import pytest

from pinnace.api import names

Check = Callable[[str], tuple[str, ...]]

GOOD: dict[Check, list[str]] = {
    names.dns_subdomain: ["a", "0", "web-0", "a.b.c", "a-b.c-d", "a" * 253],
    names.dns_label: ["a", "0", "web-0", "a" * 63],
    names.label_key: ["a", "A", "a.b", "a_b", "a-b", "1", "x.y/a", "example.com/" + "a" * 63, "a" * 63],
    names.label_value: ["", "a", "A.b_c-d", "1", "a" * 63],
    names.port_name: ["http", "a", "p2", "metrics-2", "1a"],
    names.http_header: ["Host", "X-Token-2"],
    names.env_name: ["A", "a b", "1A", "my.env-name", "..", "~"],
    names.config_key: ["a", "A.b_c-d", ".hidden", "a" * 253],
    names.path_segment: ["a", "system:node", "Ada Lovelace", "a,b=c", "...", "ä", "a" * 253],
}
BAD: dict[Check, list[str]] = {
    names.dns_subdomain: ["", "A", "a_b", "-a", "a-", ".a", "a.", "a..b", "a/b", "a b", "a\n", "ä", "a" * 254],
    names.dns_label: ["", "A", "a.b", "-a", "a-", "a\n", "a" * 64],
    names.label_key: [
        "",
        "/",
        "/a",
        "a/",
        "a/b/c",
        "-a",
        "a-",
        "A_/b",
        "a b",
        "a\n",
        "ä",
        "a" * 64,
        "a" * 254 + "/b",
        "a" * 400,
    ],
    names.label_value: ["-a", "a-", ".", "a b", "a/b", "a\n", "ä", "a" * 64],
    names.http_header: ["", "a: b", "a\n", "ä"],
    names.port_name: ["", "80", "A", "a--b", "-a", "a-", "a" * 16, "a_b"],
    names.env_name: ["", "A=B", "ä", "a\n", "\t"],
    names.config_key: ["", ".", "..", "..a", "a/b", "a\n", "a" * 254],
    names.path_segment: [".", "..", "a/b", "/", "a%2Fb", "a" * 254],
}


@pytest.mark.parametrize(("check", "text"), [(check, text) for check, texts in GOOD.items() for text in texts])
def test_valid_names(check: Check, text: str) -> None:
    assert check(text) == ()


@pytest.mark.parametrize(("check", "text"), [(check, text) for check, texts in BAD.items() for text in texts])
def test_invalid_names(check: Check, text: str) -> None:
    problems = check(text)
    assert problems
    assert all(problems)
    assert check(text) == problems, "the cached result differs"


@pytest.mark.parametrize(
    ("check", "text", "message"),
    [
        (
            names.dns_subdomain,
            "A",
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
            "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
            "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        ),
        (
            names.dns_label,
            "A",
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
            "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
            "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
        ),
        (names.dns_label, "a.b", "must not contain dots"),
        (names.dns_label, "a" * 64, "must be no more than 63 characters"),
        (
            names.label_value,
            "-",
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
            "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
            "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ),
        (names.label_key, "/a", "prefix part must be non-empty"),
        (names.label_key, "a/", "name part must be non-empty"),
        (names.path_segment, "..", "may not be '..'"),
        (names.path_segment, "a/b", "may not contain '/'"),
    ],
)
def test_messages_are_those_of_kubernetes(check: Check, text: str, message: str) -> None:
    assert check(text) == (message,)


@pytest.mark.parametrize("check", list(GOOD))
def test_long_text_is_checked_quickly(check: Check) -> None:
    started = time.process_time()
    for text in ("a" * 1_000_000 + "!", "a-" * 500_000, "a." * 500_000, "/" * 1_000_000):
        assert check(text) != () or check in (names.env_name, names.http_header)
    assert time.process_time() - started < 2


def test_long_texts_are_not_cached() -> None:
    for check, memory in (
        (names.dns_label, names._dns_label),
        (names.label_key, names._label_key),
        (names.label_value, names._label_value),
        (names.port_name, names._port_name),
    ):
        memory.cache_clear()
        check("x" * 10_000)
        assert memory.cache_info().currsize == 0


def test_prefix_may_end_in_a_dash() -> None:
    assert names.dns_subdomain(names.complete_generate_name("web-")) == ()
    assert names.dns_subdomain(names.complete_generate_name("-")) != ()
    assert names.complete_generate_name("web") == "web"
