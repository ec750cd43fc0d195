"""Which configuration `why` follows."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pinnace.api.elections_pb2 import Election
from pinnace.scheduler.config import Configuration, ConfigurationError, configuration_digest, parse_configuration
from pinnace.scheduler.explaining import DEFAULT, ConfigurationSource, select_configuration

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
PACKING = "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}]}]\n"
PLUGIN = "class Green:\n    name = 'Green'\n    def filter(self, state, pod, nodes):\n        return None\n"
NAME = "default-scheduler"


def led(configuration: Configuration | str, *names: str, election: str = "scheduler") -> Election:
    said = configuration if isinstance(configuration, str) else configuration_digest(configuration)
    return Election(name=election, holder="scheduler-0", scheduler_names=names or [NAME], configuration=said)


def offer(folder: Path, text: str = PACKING, *plugins: str) -> ConfigurationSource:
    path = folder / "policy.yaml"
    path.write_text(HEAD + text)
    return ConfigurationSource("policy.yaml", str(path), plugins)


def said(elections: Sequence[Election] | None, name: str = NAME, **offers: ConfigurationSource) -> tuple[str, str, bool, str]:
    configuration = select_configuration(name, elections, **offers)
    return configuration.source, configuration.unconfirmed, configuration.assumed, configuration.unknown


def test_default_configuration_when_the_leader_has_it() -> None:
    assert said([led(Configuration(seed=7))]) == (DEFAULT, "", False, "")


def test_configuration_of_the_local_cluster_is_used_when_the_leader_has_it(tmp_path: Path) -> None:
    kept = offer(tmp_path)
    assert said([led(kept.load())], kept=kept) == ("policy.yaml", "", False, "")
    assert said([led(Configuration())], kept=kept) == (DEFAULT, "", False, "")


def test_leader_with_another_configuration_is_not_explained_by_the_defaults(tmp_path: Path) -> None:
    """It was: `why` then said that chance had chosen."""
    source, why, assumed, _ = said([led(offer(tmp_path).load())])
    assert (source, assumed) == (DEFAULT, True)
    assert why.endswith('leads election "scheduler" and decides, uses a configuration other than the default configuration')


def test_configuration_file_is_followed_and_compared(tmp_path: Path) -> None:
    given = offer(tmp_path)
    assert said([led(given.load())], given=given) == ("policy.yaml", "", False, "")
    source, why, assumed, _ = said([led(Configuration())], given=given)
    assert (source, assumed) == ("policy.yaml", False) and why.endswith("uses a configuration other than policy.yaml")
    with pytest.raises(ConfigurationError):
        select_configuration(NAME, [], ConfigurationSource("x", "", ["nowhere:Nothing"]))


def test_leader_that_publishes_no_digest_and_elections_that_may_not_be_listed() -> None:
    assert said([led("")])[1:3] == (
        'scheduler-0, which leads election "scheduler" and decides, does not publish a digest of its configuration', True,
    )  # fmt: skip
    assert said(None)[1:3] == ("you have no permission to list elections, so the deciding scheduler is unknown", True)


def test_local_configuration_that_cannot_be_loaded_any_more(tmp_path: Path) -> None:
    kept = offer(tmp_path)
    leader = led(kept.load())
    Path(kept.file).unlink()
    _, why, assumed, _ = said([leader], kept=kept)
    assert assumed and "; policy.yaml cannot be loaded: " in why


def test_scheduler_that_nothing_runs(tmp_path: Path) -> None:
    elections = [led(Configuration(), "b", "a"), led("", "c", election="other"), Election(name="controllers", holder="x")]
    unknown = 'no running scheduler has a profile named "nobody"; profiles: a, b, c'
    assert said(elections, "nobody")[3] == unknown
    assert said(elections)[3] == unknown.replace("nobody", NAME), "the default one may be missing, too"
    assert said([], "nobody")[3] == 'no running scheduler has a profile named "nobody"; profiles: none'
    assert said(elections, "nobody", given=offer(tmp_path))[3] == f'{unknown}; no profile is named "nobody" in policy.yaml'


def test_while_the_default_scheduler_has_no_leader_its_configuration_is_the_local_one(tmp_path: Path) -> None:
    assert said([]) == (DEFAULT, "", False, "")
    assert said([], kept=offer(tmp_path)) == ("policy.yaml", "", False, "")


def test_digest_is_of_what_decides_about_nodes() -> None:
    default = Configuration()
    assert (
        configuration_digest(default)
        == configuration_digest(replace(default, seed=3, max_backoff=99.0, election="x"))
        == configuration_digest(parse_configuration(HEAD))
    )
    assert configuration_digest(default) != configuration_digest(parse_configuration(HEAD + PACKING))


def test_digest_is_of_what_is_in_a_plugins_file_and_not_of_its_path(tmp_path: Path) -> None:
    for folder, text in (("a", PLUGIN), ("b", PLUGIN), ("c", PLUGIN + "    # other\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "green.py").write_text(text)
    same, also, other = (
        configuration_digest(ConfigurationSource(plugins=[f"{tmp_path}/{folder}/green.py:Green"]).load()) for folder in "abc"
    )
    assert same == also != other and same != configuration_digest(Configuration())


def test_leaders_digest_is_of_the_plugin_as_it_was_loaded(tmp_path: Path) -> None:
    file = tmp_path / "green.py"
    file.write_text(PLUGIN)
    configuration = ConfigurationSource(plugins=[f"{file}:Green"]).load()
    before = configuration_digest(configuration)
    file.write_text(PLUGIN + "    # other\n")
    assert (
        configuration_digest(configuration)
        == before
        != configuration_digest(ConfigurationSource(plugins=[f"{file}:Green"]).load())
    )
