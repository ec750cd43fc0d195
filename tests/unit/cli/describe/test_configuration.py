"""The descriptions of config maps and secrets: texts of the one, sizes of the other."""

from pinnace.api.codec import from_dict
from pinnace.api.resources import CONFIG_MAPS, SECRETS
from pinnace.cli.describe.cluster import describe_config_map, describe_secret
from pinnace.cli.describe.text import render

VALUE = "hunter2"


def test_a_config_map_shows_its_texts() -> None:
    config_map = from_dict(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"k": "one\ntwo"}, "binaryData": {"b": "AAEC"}})
    lines = [line.strip() for line in render(describe_config_map(config_map))]
    assert lines[-4:] == ["k:  one", "two", "BinaryData:", "b:  3 bytes"]


def test_a_secret_shows_sizes_and_no_values() -> None:
    applied = {"kubectl.kubernetes.io/last-applied-configuration": f'{{"stringData":{{"k":"{VALUE}"}}}}'}
    data = {"metadata": {"name": "a", "annotations": applied}, "type": "Opaque", "stringData": {"k": VALUE}, "immutable": True}
    secret = from_dict(SECRETS, data)
    secret.data["k"] = VALUE.encode()
    shown = "\n".join(render(describe_secret(secret)))
    assert "7 bytes" in shown and "Immutable:" in shown and VALUE not in shown
