"""Config maps, secrets and service accounts: defaults, validation, and data that cannot be changed."""

from typing import Any

import pytest

from pinnace.api.codec import CodecError, from_dict
from pinnace.api.resources import CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS
from tests.unit.registry.objects import Data, changed, created

METADATA = {"name": "a", "namespace": "default"}
SEALED = "Forbidden: field is immutable when `immutable` is set"
VALUE = "aHVudGVyMg=="


def config_map(**fields: Any) -> Any:
    return from_dict(CONFIG_MAPS, {"metadata": METADATA, **fields})


def secret(**fields: Any) -> Any:
    return from_dict(SECRETS, {"metadata": METADATA, **fields})


class TestConfigMaps:
    @pytest.mark.parametrize(
        ("fields", "expected"),
        [
            ({"data": {"a.b-c_D": "x"}, "binaryData": {"e": "AAEC"}}, []),
            ({"data": {"a": "x"}, "binaryData": {"a": "AA=="}},
             ['data[a]: Invalid value: "a": duplicate of key present in binaryData']),
            ({"data": {"..": "x"}}, ["data[..]: Invalid value: \"..\": must not be '..'"]),
            ({"binaryData": {"..a": "AA=="}}, ["binaryData[..a]: Invalid value: \"..a\": must not start with '..'"]),
            ({"data": {"a": "é" * (1 << 19) + "x"}}, ["[]: Too long: may not be more than 1048576 bytes"]),
        ],
    )  # fmt: skip
    def test_validation(self, fields: Data, expected: list[str]) -> None:
        assert created(CONFIG_MAPS, config_map(**fields)) == expected

    def test_immutable_data_cannot_be_changed(self) -> None:
        old = config_map(data={"a": "x"}, immutable=True)
        assert changed(CONFIG_MAPS, config_map(data={"a": "x"}, immutable=True), old) == []
        new = config_map(data={"a": "y"}, binaryData={"b": "AA=="})
        assert changed(CONFIG_MAPS, new, old) == [f"immutable: {SEALED}", f"data: {SEALED}", f"binaryData: {SEALED}"]

    def test_data_can_become_immutable(self) -> None:
        assert changed(CONFIG_MAPS, config_map(data={"a": "y"}, immutable=True), config_map(data={"a": "x"})) == []


class TestSecrets:
    def test_type_is_opaque_and_string_data_are_written_into_data(self) -> None:
        obj = secret(data={"a": VALUE, "b": VALUE}, stringData={"b": "text"})
        assert created(SECRETS, obj) == []
        assert (obj.type, dict(obj.data), dict(obj.stringData)) == ("Opaque", {"a": b"hunter2", "b": b"text"}, {})

    @pytest.mark.parametrize(
        ("fields", "expected"),
        [
            ({"type": "example.com/any"}, []),
            ({"type": "kubernetes.io/tls", "data": {"tls.crt": ""}}, ["data[tls.key]: Required value"]),
            ({"type": "kubernetes.io/basic-auth"}, ["data[username]: Required value", "data[password]: Required value"]),
            ({"type": "kubernetes.io/basic-auth", "stringData": {"username": "u"}}, []),
            ({"type": "kubernetes.io/ssh-auth", "data": {"ssh-privatekey": ""}}, ["data[ssh-privatekey]: Required value"]),
            ({"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "{}"}}, []),
            ({"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "hunter2"}},
             ['data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": must be a JSON object']),
            ({"type": "kubernetes.io/service-account-token"},
             ["metadata.annotations[kubernetes.io/service-account.name]: Required value"]),
            ({"stringData": {"a": "x" * (1 << 20) + "x"}}, ["data: Too long: may not be more than 1048576 bytes"]),
        ],
    )  # fmt: skip
    def test_validation(self, fields: Data, expected: list[str]) -> None:
        assert created(SECRETS, secret(**fields)) == expected

    def test_type_is_immutable_and_kept_by_an_update_without_one(self) -> None:
        old, new = secret(type="example.com/a"), secret()
        assert changed(SECRETS, new, old) == [] and new.type == "example.com/a"
        assert changed(SECRETS, secret(type="Opaque"), old) == ['type: Invalid value: "Opaque": field is immutable']

    def test_immutable_data_cannot_be_changed(self) -> None:
        old = secret(type="Opaque", data={"a": VALUE}, immutable=True)
        result = changed(SECRETS, secret(stringData={"a": "other"}), old)
        assert result == [f"immutable: {SEALED}", f"data: {SEALED}"]

    @pytest.mark.parametrize(
        "fields",
        [{"data": {"a": "not base64: hunter2"}}, {"stringData": {"a": 123456}}, {"data": "hunter2"}, {"stringData": 123456}],
    )
    def test_messages_of_undecodable_data_do_not_contain_it(self, fields: Data) -> None:
        with pytest.raises(CodecError) as caught:
            secret(**fields)
        assert not [value for value in ("hunter2", "123456") if value in str(caught.value)]


def test_service_account_needs_no_fields() -> None:
    assert created(SERVICE_ACCOUNTS, from_dict(SERVICE_ACCOUNTS, {"metadata": METADATA})) == []
