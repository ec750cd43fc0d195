"""What containers ask for: names, amounts, requests against limits."""

import pytest

from pinnace.api.resources import PODS
from tests.unit.registry.objects import Data, created, pod

C = "spec.containers[0]"


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1", "ephemeral-storage": "1Gi"}}, []),
        ({"requests": {"cpu": "1000m"}, "limits": {"cpu": "1"}}, []),
        ({"requests": {"cpu": "0"}}, []),
        (
            {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
            [f'{C}.resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1'],
        ),
        (
            {"requests": {"cpu": "-1"}},
            [f'{C}.resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0'],
        ),
        (
            {"requests": {"gpu": "1"}},
            [
                f'{C}.resources.requests[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified',
                f'{C}.resources.requests[gpu]: Invalid value: "gpu": must be a standard resource for containers',
            ],
        ),
        ({"limits": {"example.com/gpu": "2"}}, []),
        ({"limits": {"kubernetes.io/thing": "2"}}, []),
        (
            {"requests": {"example.com/gpu": "2"}},
            [f"{C}.resources.limits: Required value: Limit must be set for non overcommitable resources"],
        ),
        (
            {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "2"}},
            [f'{C}.resources.requests: Invalid value: "1": must be equal to example.com/gpu limit of 2'],
        ),
        (
            {"limits": {"requests.example.com/gpu": "1"}},
            [
                f'{C}.resources.limits[requests.example.com/gpu]: Invalid value: "requests.example.com/gpu": '
                "doesn't follow extended resource name standard",
                f'{C}.resources.requests[requests.example.com/gpu]: Invalid value: "requests.example.com/gpu": '
                "doesn't follow extended resource name standard",
            ],
        ),
        ({"limits": {"hugepages-2Mi": "4Mi", "cpu": "1"}}, []),
        ({"limits": {"hugepages-2Mi": "4Mi"}}, [f"{C}.resources: Forbidden: HugePages require cpu or memory"]),
    ],
)
def test_resources(resources: Data, expected: list[str]) -> None:
    assert created(PODS, pod({"resources": resources})) == expected


def test_fraction_of_a_device_is_none() -> None:
    result = created(PODS, pod({"resources": {"limits": {"example.com/gpu": "0.5"}}}))
    assert result == [
        f'{C}.resources.{kind}[example.com/gpu]: Invalid value: "0.5": must be an integer' for kind in ("limits", "requests")
    ]


@pytest.mark.parametrize(("size", "text"), [("2Mi", "4Mi"), ("2Mi", "0"), ("1Gi", "2Gi"), ("64Ki", "1Mi")])
def test_huge_pages_come_whole(size: str, text: str) -> None:
    assert created(PODS, pod({"resources": {"limits": {"cpu": "1", f"hugepages-{size}": text}}})) == []


@pytest.mark.parametrize(
    ("size", "text"),
    [("2Mi", "5Mi"), ("1Mi", "1.1Mi"), ("64Ki", "127Ki"), ("x", "4Mi"), ("0", "0"), ("1m", "4Mi"), ("-1", "1")],
)
def test_part_of_a_huge_page_is_none(size: str, text: str) -> None:
    """Nor is a page whose size is none."""
    result = created(PODS, pod({"resources": {"limits": {"cpu": "1", f"hugepages-{size}": text}}}))
    detail = f'Invalid value: "{text}": must be a positive integer multiple of the page size {size}'
    assert result == [f"{C}.resources.{kind}[hugepages-{size}]: {detail}" for kind in ("limits", "requests")]


@pytest.mark.parametrize("text", ["", "lots", "1" * 100_000])
def test_amounts_that_are_none(text: str) -> None:
    """They come in as protobuf: nobody has looked at their syntax yet."""
    obj = pod()
    obj.spec.containers[0].resources.requests["cpu"].string = text
    for _ in range(2):  # the second time it is remembered
        (violation,) = created(PODS, obj)
        assert violation.startswith(f'{C}.resources.requests[cpu]: Invalid value: "{text[:10]}')
        assert len(violation) < 500


def test_name_of_a_resource_that_is_none() -> None:
    (violation,) = created(PODS, pod({"resources": {"requests": {"x" * 100_000: "1"}}}))
    assert violation.endswith("must be no more than 317 bytes")
    assert len(violation) < 1000
