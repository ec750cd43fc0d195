"""Which configuration an explanation follows: that of the scheduler that decides, or one that may differ from it.

    elections --decides--> the leader's digest --+-- of an offered configuration --> this one, and it is the scheduler's
                                                 '-- of none ------------------> the first one, unconfirmed

Leaders publish a digest of their configuration in their election (`scheduler.config.digest`). So the configuration need not be
sent. No code is loaded because an election names it: plugins come from files that the user names, or the user's own cluster.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pinnace.api import wellknown
from pinnace.api.elections_pb2 import Election
from pinnace.api.records import decides, no_profile
from pinnace.api.wellknown import SCHEDULER_ELECTION
from scheduler.config import Configuration, ConfigurationError, check, digest, parse, with_plugin

DEFAULT = "the default configuration"


@dataclass(frozen=True, slots=True)
class Offer:
    """A configuration by its file and the plugins that are added to it. `source`: how it is called in sentences."""

    source: str = DEFAULT
    file: str = ""
    plugins: Sequence[str] = ()

    def load(self) -> Configuration:
        """Raises ConfigurationError, or OSError."""
        configuration = parse(Path(self.file).read_text()) if self.file else Configuration()
        for plugin in self.plugins:
            configuration = with_plugin(configuration, plugin)
        return check(configuration)


@dataclass(frozen=True, slots=True)
class Followed:
    """`unconfirmed`: why this may not be the configuration of the scheduler that decides; empty: it is. `assumed`: it is
    unconfirmed, and the user did not ask for it. `unknown`: why there is nothing to explain by."""

    configuration: Configuration = field(default_factory=Configuration)
    source: str = DEFAULT
    unconfirmed: str = ""
    assumed: bool = False
    unknown: str = ""


def follow(
    scheduler: str, elections: Sequence[Election] | None, given: Offer | None = None, kept: Offer | None = None
) -> Followed:
    """`elections`: those that are led; None: they may not be listed. `given`: by the user, and always followed. `kept`: what
    the schedulers of the user's local cluster were started with. Raises ConfigurationError, or OSError, about `given`."""
    problems: list[str] = []
    offers = [(given, given.load())] if given else list(_loaded(filter(None, (kept, Offer())), problems))
    leader = decides(scheduler, elections or ())
    if elections is None:
        unconfirmed = "you may not list elections, so it is not known which scheduler decides"
    elif leader is not None:
        if leader.configuration:
            for offer, configuration in offers:
                if leader.configuration == digest(configuration):
                    return Followed(configuration, offer.source)
        unconfirmed = "; ".join([_differs(leader, [offer for offer, _ in offers]), *problems])
    elif _leaderless(scheduler, elections):
        unconfirmed = ""
    elif given is None:
        return Followed(unknown=no_profile(scheduler, elections))
    else:
        unconfirmed = no_profile(scheduler, elections)
    for offer, configuration in offers:
        if scheduler in (profile.scheduler_name for profile in configuration.profiles):
            return Followed(configuration, offer.source, unconfirmed, bool(unconfirmed) and given is None)
    sources = " and ".join(offer.source for offer, _ in offers)
    return Followed(unknown="; ".join(filter(None, (unconfirmed, f'no profile is named "{scheduler}" in {sources}'))))


def _leaderless(scheduler: str, elections: Sequence[Election]) -> bool:
    """Is it the cluster's default scheduler, and does none lead? That is about the election, not about a name."""
    return scheduler == wellknown.DEFAULT_SCHEDULER and SCHEDULER_ELECTION not in (each.name for each in elections)


def _loaded(offers: Iterable[Offer], problems: list[str]) -> Iterator[tuple[Offer, Configuration]]:
    """Those that can be loaded; of the others `problems` gets why."""
    for offer in offers:
        try:
            yield offer, offer.load()
        except (ConfigurationError, OSError) as error:
            problems.append(f"{offer.source} cannot be loaded: {error}")


def _differs(leader: Election, offers: Sequence[Offer]) -> str:
    who = f'{leader.holder}, which leads election "{leader.name}" and decides,'
    if not leader.configuration:
        return f"{who} does not publish a digest of its configuration"
    return f"{who} uses another configuration than {' and '.join(offer.source for offer in offers)}"
