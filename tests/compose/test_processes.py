"""docker-compose.yml with processes.env: a page of three pods is reached by the name of its service."""

import json
from collections import Counter
from collections.abc import Iterator

import pytest

from pinnace.verification.bench.pages import PAGE
from tests.compose.stack import BUILD_TIMEOUT, START_TIMEOUT, Stack, eventually, started

pytestmark = [pytest.mark.compose, pytest.mark.timeout(BUILD_TIMEOUT + 2 * START_TIMEOUT)]

CLIENT = """
import sys
from urllib.request import urlopen
for _ in range(int(sys.argv[2])):
    print(urlopen(sys.argv[1], timeout=5).read().decode())
"""


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with started(Stack(env_file="processes.env")) as stack:
        yield stack


def page() -> list[dict[str, object]]:
    container = {
        "name": "page",
        "image": "python",
        "command": ["python", "-S", "-c", PAGE],
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
    }
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 3, "selector": {"matchLabels": labels}, "template": template}
    return [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web"},
            "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]},
        },
    ]


def test_page_of_three_pods_is_reached_by_its_name(stack: Stack) -> None:
    applied = stack.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": page()}))
    assert applied.returncode == 0, applied.stderr
    done = stack.kubectl("rollout", "status", "deployment/web", "--timeout", "25s")
    assert done.returncode == 0, done.stderr

    def answers(url: str, count: int = 1) -> Counter[str] | None:
        try:
            return Counter(stack.compose("exec", "-T", "proxy", "python", "-c", CLIENT, url, str(count)).split())
        except AssertionError:
            return None

    eventually("the page answers", lambda: answers("http://web.default.svc.cluster.local"), 20.0)
    result = answers("http://web", 30)
    assert result is not None and len(result) == 3 and set(result.values()) == {10}, result
