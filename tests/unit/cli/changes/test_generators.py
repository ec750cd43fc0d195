import pytest

from pinnace.api import names
from pinnace.cli.verbs.create import container_name, new_job


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
