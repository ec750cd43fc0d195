"""What a process counts, read from its /metrics."""

import asyncio
from http.client import HTTPException
from urllib.request import ProxyHandler, build_opener

from prometheus_client.parser import text_string_to_metric_families

from pinnace.bench.errors import BenchError

TIMEOUT = 5.0
_direct = build_opener(ProxyHandler({}))
"""Opens loopback addresses whatever http_proxy says."""


async def read(http: str, name: str, /, **labels: str) -> int | None:
    """The sum of the samples of this name that have these labels; None when the process does not count that. Raises
    BenchError."""
    return total(await asyncio.to_thread(_fetch, http), name, **labels)


def total(text: str, name: str, /, **labels: str) -> int | None:
    """As `read`, of a text in Prometheus' format."""
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    values = [sample.value for sample in samples if sample.name == name and labels.items() <= sample.labels.items()]
    return int(sum(values)) if values else None


async def read_by(http: str, name: str, label: str) -> dict[str, float]:
    """The samples of this name, by this label. Raises BenchError."""
    families = text_string_to_metric_families(await asyncio.to_thread(_fetch, http))
    return {sample.labels[label]: sample.value for family in families for sample in family.samples if sample.name == name}


def _fetch(http: str) -> str:
    try:
        with _direct.open(f"http://{http}/metrics", timeout=TIMEOUT) as answer:
            text: str = answer.read().decode()
    except (HTTPException, OSError) as error:
        raise BenchError(f"no metrics at {http}: {error}") from error
    return text
