"""The verb `snapshot`: the objects of a cluster as a file, through the Kubernetes API (pinnace.snapshot)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click

from pinnace.cli.api_access import connect_cluster
from pinnace.cli.command import VerbGroup, verb
from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import print_note, print_result, show_progress
from pinnace.snapshot.api import ApiError
from pinnace.snapshot.documents import SnapshotError, read_objects, writing
from pinnace.snapshot.restore import Existing, restore_objects
from pinnace.snapshot.save import Selection, save_objects

file_argument = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
SHOWN = 20
"""Maximum number of single objects in an error."""


@click.group("snapshot", cls=VerbGroup)
def snapshot() -> None:
    """Save the objects of a cluster as a file, or restore them elsewhere.

    The file has manifests. Restored objects are new ones. It works through the Kubernetes API, for local clusters and others.
    `pinnace backup` saves a whole local cluster with its history and keys instead.
    """


@verb(
    "save",
    examples="""
        pinnace snapshot save cluster.json                                 # everything, one JSON object a line
        pinnace snapshot save web.yaml -n web --filter deploy,rs,pods,svc  # as YAML
        pinnace snapshot save other.json --kubeconfig ~/.kube/config --context production -l app=web
    """,
)
@file_argument
@click.option("--filter", "kinds", metavar="KIND,...", help="Only these kinds, as kubectl names them. By default, all kinds.")
@click.option("-l", "--selector", default="", metavar="SELECTOR", help="Only objects with these labels.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def save(settings: Settings, file: Path, kinds: str | None, selector: str, force: bool) -> None:
    """Write the objects of a cluster to FILE: all kinds that are served, custom ones too, except for those that a cluster
    creates by itself. The summary lists what was not taken and why.

    With -n, only objects of this namespace are taken. A name that ends in .yaml or .yml makes YAML. The file contains the
    values of Secrets, and only its owner can read it.
    """
    chosen = [name.strip() for name in (kinds or "").split(",") if name.strip()]
    selection = Selection(chosen, [settings.namespace] if settings.namespace else [], selector)
    with translate_snapshot_errors(), connect_cluster(settings) as api, writing(file, overwrite=force) as write:
        summary = save_objects(api, selection, write)
        if not summary.taken:
            raise Failure("no objects were found; nothing was written", code=ExitCode.NOT_FOUND)
    print_result(f"wrote {summary.taken.total():,} objects to {file}: {_counts(summary.taken)}\n")
    _print_omitted(summary.omitted)


@verb(
    "restore",
    examples="""
        pinnace snapshot restore cluster.json
        pinnace snapshot restore cluster.json --existing skip       # continue a restore that was interrupted
    """,
)
@file_argument
@click.option(
    "--existing", type=click.Choice([item.value for item in Existing]), default=Existing.REFUSE.value, show_default=True,
    help="If objects of the snapshot exist: restore nothing, skip them, or overwrite them.",
)  # fmt: skip
def restore(settings: Settings, file: Path, existing: str) -> None:
    """Create the objects of FILE in a cluster, with new UIDs and remapped owners.

    Status is restored where it is an input: the resources of nodes, and the end of Pods and Jobs. FILE can be a stream of
    manifests from elsewhere, such as `kwokctl snapshot export`.
    """
    with translate_snapshot_errors(), connect_cluster(settings) as api:
        objects = read_objects(file)
        with show_progress("restoring", len(objects), no_color=settings.no_color) as advance:
            result = restore_objects(api, objects, Existing(existing), lambda: advance(1))
    written = [("created", result.created), ("overwritten", result.overwritten)]
    for word, counts in written:
        if counts:
            print_result(f"{word} {counts.total():,} objects: {_counts(counts)}\n")
    _print_omitted(result.omitted)
    if result.failures:
        raise Failure(
            f"{len(result.failures)} objects were not restored", details=result.failures[:SHOWN], code=ExitCode.INVALID
        )


@contextmanager
def translate_snapshot_errors() -> Iterator[None]:
    try:
        yield
    except SnapshotError as error:
        more = len(error.details) - SHOWN
        details = [*error.details[:SHOWN], *([f"and {more} more"] if more > 0 else [])]
        exists = "already exist" in str(error)
        hint = "--existing skip or --existing overwrite restores the others, too" if exists and error.details else ""
        code = ExitCode.CONFLICT if exists else ExitCode.INVALID
        raise Failure(str(error), details=details, hint=hint, code=code) from error
    except ApiError as error:
        raise Failure(f"the API server refuses: {error}", code=ExitCode.SERVER) from error


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))


def _print_omitted(omitted: Mapping[tuple[str, str], int]) -> None:
    reasons: dict[str, list[str]] = {}
    for (name, reason), number in sorted(omitted.items()):
        reasons.setdefault(reason, []).append(f"{number} {name}" if number else name)
    for reason, names in reasons.items():
        print_note(f"not taken, {reason}: {', '.join(names)}")


snapshot.add_command(save)
snapshot.add_command(restore)
