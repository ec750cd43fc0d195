"""Lists as YAML are converted and sent in parts."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import yaml

from pinnace.api.core_v1_pb2 import ConfigMap
from pinnace.api.resources import CONFIG_MAPS
from tests.unit.gateway.serving import Gateway, gateway

PATH = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
async def served() -> AsyncIterator[Gateway]:
    """A gateway with lists of some hundred kilobytes."""
    async with gateway() as result:
        maps = [ConfigMap(metadata={"name": f"map-{i}"}, data={"text": f"a: b # {i}\n" * 100}) for i in range(300)]
        await asyncio.gather(*map(result.client.of(CONFIG_MAPS).create, maps))
        yield result


@pytest.mark.parametrize("query", ["", "?labelSelector=a=none", "?limit=3", "?limit=299"])
async def test_list_as_yaml_is_the_list_as_json(served: Gateway, query: str) -> None:
    as_yaml = await served.ask("GET", PATH + query, accept="application/yaml")
    as_json = await served.ask("GET", PATH + query)
    result, expected = yaml.safe_load(as_yaml.body), as_json.json
    assert as_yaml.code == 200 and as_yaml.content_type == "application/yaml"
    assert result["items"] == expected["items"]
    assert [result[key] for key in ("kind", "apiVersion")] == ["ConfigMapList", "v1"]
