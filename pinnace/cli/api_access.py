"""Access to the Kubernetes API of any cluster for our verbs, through kubectl's proxy (pinnace.snapshot.api)."""

from collections.abc import Iterator
from contextlib import contextmanager

from pinnace.cli import kubectl
from pinnace.cli.outcomes import ExitCode, Failure, usage_failure
from pinnace.cli.settings import Settings
from pinnace.snapshot.api import ApiUnavailable, ClusterApi, connect


@contextmanager
def connect_cluster(settings: Settings) -> Iterator[ClusterApi]:
    """Yield a client of the cluster that the global flags name: with --kubeconfig any cluster, otherwise a pinnace cluster, as
    for kubectl's verbs. Raises Failure if it cannot be reached, also within the block."""
    if settings.server:
        raise usage_failure("--server is not supported here", hint="--kubeconfig and --context name a cluster")
    words = ["proxy"]
    for flag, value in (("--kubeconfig", settings.kubeconfig), ("--context", settings.context), ("--as", settings.acting_as)):
        if value:
            words.append(f"{flag}={value}")
    words += [f"--as-group={group}" for group in settings.acting_groups]
    try:
        arguments, environment = kubectl.address_kubectl(words)
        with connect([kubectl.find_kubectl(), *arguments], environment) as api:
            yield api
    except kubectl.HandOverError as error:
        raise Failure(str(error), hint=error.hint, code=ExitCode(error.code)) from error
    except ApiUnavailable as error:
        raise Failure(f"the API server cannot be reached: {error}", code=ExitCode.UNAVAILABLE) from error
