"""Small files that become huge or endless when they are read.

Each reader refuses them at once with a short message. PyYAML's own loader recurses (RecursionError from 1,000 levels on),
resolves aliases that unfold exponentially, converts long numbers in quadratic time, and raises ValueError for invalid dates.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from pinnace.api import documents, manifest
from pinnace.client import config
from pinnace.kubelet.runtime.stages import StagesError
from pinnace.kubelet.runtime.stages import parse_stages as parse_stages
from pinnace.runtime.configuration import ConfigurationError
from pinnace.scheduler.config import parse_configuration as parse_scheduler

LAUGHS = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30))
BOMBS = {
    "aliases": f"a0: &a0 [lol]\n{LAUGHS}profiles: *a29\nclusters: *a29\n",
    "an alias of itself": "profiles: &a [*a]\n",
    "flow sequences": "[" * 100_000,
    "mappings": "{a: " * 20_000,
    "indentation": "\n".join(f"{' ' * depth}a:" for depth in range(2000)),
    "a key": f"? {'x' * 2_000_000}\n: 1\n",
    "a number": f"a: {'9' * 100_000}\n",
    "a sexagesimal number": f"a: {':'.join(['59'] * 100_000)}\n",
    "a date": "a: 2001-99-99\n",
    "a tag": "!!python/object/apply:os.system [exit]\n",
    "a text": f"a: {'x' * (documents.MAX_SIZE + 1)}\n",
}


def read_kubeconfig(text: str, folder: Path) -> None:
    (folder / "config").write_text(text)
    config.read_configuration(folder / "config")


OF_OTHERS = ("a key", "a number", "a sexagesimal number", "a date")
"""Fields of a kubeconfig that are not ours are never evaluated."""
READERS: dict[str, Callable[[str, Path], object]] = {
    "manifest": lambda text, folder: manifest.load(text, "bomb.yaml"),
    "kubeconfig": read_kubeconfig,
    "scheduler": lambda text, folder: parse_scheduler(text),
    "stages": lambda text, folder: parse_stages(text, "bomb.yaml"),
}
REFUSALS = (manifest.ManifestError, config.ConfigError, ConfigurationError, StagesError)


@pytest.mark.parametrize(
    ("reader", "bomb"),
    [(reader, bomb) for reader in READERS for bomb in BOMBS if reader != "kubeconfig" or bomb not in OF_OTHERS],
)
def test_bomb_is_refused_with_a_short_message(reader: str, bomb: str, tmp_path: Path) -> None:
    with pytest.raises(REFUSALS) as refused:
        READERS[reader](BOMBS[bomb], tmp_path)
    assert len(str(refused.value)) < 1500
