from pathlib import Path
from typing import Any

import pytest

from pinnace.api import names
from pinnace.api.codec import from_dict
from pinnace.api.resources import SECRETS
from pinnace.cli.objects.generators import container_name, data_of, new_config_map, new_job
from pinnace.cli.outcomes import Failure
from pinnace.cli.verbs.apply import difference


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("nginx", "nginx"),
        ("registry.example.com:5000/web/Nginx_x:1.27", "nginx-x"),
        ("app@sha256:0123", "app"),
        ("-:1", "main"),
        ("", "main"),
        ("a" * 62 + "-b", "a" * 62),
    ],
)
def test_a_container_is_called_like_its_image(image: str, name: str) -> None:
    assert container_name(image) == name
    assert not names.dns_label(name)


def test_the_container_of_a_job_is_called_like_the_job() -> None:
    """As kubectl has it, for `logs -c` and strategic patches."""
    (container,) = new_job("pi", "default", "perl:5", ["perl"])[1].spec.template.spec.containers
    assert (container.name, container.image, list(container.command)) == ("pi", "perl:5", ["perl"])


def test_the_data_of_config_maps_and_secrets(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.txt").write_text("text")
    (folder / "logo").write_bytes(b"\xff")
    data = data_of(["k=v=w"], [str(folder), f"copy={folder / 'a.txt'}"])
    assert data == {"k": b"v=w", "a.txt": b"text", "logo": b"\xff", "copy": b"text"}
    config_map: Any = new_config_map("settings", "default", data)[1]
    assert dict(config_map.binaryData) == {"logo": b"\xff"} and config_map.data["k"] == "v=w"


@pytest.mark.parametrize(
    ("literals", "files", "message"),
    [
        (["k"], [], "invalid literal source k, expected key=value"),
        (["k=v", "k=w"], [], 'cannot add key "k", another key by that name already exists'),
        (["a/b=v"], [], '"a/b" is not a valid key name'),
        ([], ["/nowhere/k"], "error reading /nowhere/k: No such file or directory"),
    ],
)
def test_data_that_cannot_be_read_are_usage_errors(literals: list[str], files: list[str], message: str) -> None:
    with pytest.raises(Failure) as caught:
        data_of(literals, files)
    assert caught.value.report.lines[0].startswith(message)


def test_the_difference_of_a_secret_shows_no_values() -> None:
    old, new = [
        from_dict(SECRETS, {"metadata": {"name": "a"}, "data": {"k": value, "same": "AA=="}}) for value in ("AQ==", "Ag==")
    ]
    lines = difference("secret/a", old, new)
    assert [line for line in lines if line[:1] in "+-"][2:] == ["-  k: '*** (before)'", "+  k: '*** (after)'"]
