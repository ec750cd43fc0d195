"""Links to the timeline, at the end of `up`."""

import webbrowser
from collections.abc import Callable
from pathlib import Path

import pytest

from pinnace.cli.local.links import local_link, open_browser
from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.verbs import up
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.spec import ClusterSpec, ClusterState

URL = "http://127.0.0.1:1/#token=x"


def cluster(folder: Path, gateways: int) -> Cluster:
    return Cluster(ClusterSpec(data_dir=folder, gateways=gateways))


def test_cluster_without_a_gateway_has_no_link(tmp_path: Path) -> None:
    made = cluster(tmp_path, 0)
    made._state = ClusterState(made.spec, 0.0, (), ())
    with pytest.raises(Failure, match="has no gateway") as caught:
        local_link(made)
    report = caught.value.report
    assert report.code == ExitCode.NOT_FOUND and "--gateways 1" in report.hint


async def test_up_goes_on_when_the_gateway_gives_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(cluster: Cluster) -> str:
        raise Failure("no gateway runs")

    monkeypatch.setattr(up, "local_link", refused)
    assert await up._create_timeline_link(cluster(tmp_path, 1), wanted=False) == ("", "no gateway runs")
    assert await up._create_timeline_link(cluster(tmp_path, 0), wanted=False) == ("", "")
    assert (await up._create_timeline_link(cluster(tmp_path, 0), wanted=True))[1] == "no gateway runs"
    monkeypatch.setattr(up, "local_link", lambda cluster: URL)
    assert await up._create_timeline_link(cluster(tmp_path, 1), wanted=False) == (URL, "")


def browsers(opened: list[str], present: bool) -> Callable[[str], bool]:
    def open_(url: str) -> bool:
        if not present:
            raise webbrowser.Error("could not locate runnable browser")
        opened.append(url)
        return True

    return open_


@pytest.mark.parametrize(
    ("wanted", "present", "expected"), [(True, True, [URL]), (True, False, []), (False, True, []), (None, True, [])]
)
def test_browser_opens_if_there_is_one(
    wanted: bool | None, present: bool, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stdout of tests is no terminal, so None means no."""
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", browsers(opened, present))
    open_browser(URL, wanted)
    assert opened == expected
