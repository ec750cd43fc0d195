"""`pinnace chaos`: breaking a cluster on purpose, and a verdict. The work is done in `pinnace.chaos`."""

import json
from pathlib import Path

import click

from pinnace.chaos.faults.base import Kind
from pinnace.chaos.faults.table import KINDS
from pinnace.chaos.run import Options
from pinnace.chaos.run import run as run_chaos
from pinnace.cli.command import VerbGroup, did_you_mean, verb
from pinnace.cli.local import running
from pinnace.cli.local.progress import Steps
from pinnace.cli.outcomes import ExitCode, Failure, usage
from pinnace.cli.settings import Settings
from pinnace.cli.stories.chaos_runs import judged, new_folder
from pinnace.cli.stories.scenarios import scenario_verbs
from pinnace.cluster.spec import ClusterSpec

POSITIVE = click.IntRange(min=1)


@click.group("chaos", cls=VerbGroup)
def chaos() -> None:
    """Break a cluster on purpose, and judge what became of it.

    Every run starts a cluster of its own in a temporary folder. What happened is taken from etcd itself and from every call of
    every client, and judged by checkers that know nothing of how the cluster works. Exit code 10 when something did not hold,
    or nothing is proven.
    """


@verb("faults", examples="pinnace chaos faults")
def faults_verb(settings: Settings) -> None:
    """List the faults that `run` knows."""
    for kind in KINDS.values():
        click.echo(f"{kind.name:<28}{kind.what}")


@verb(
    "run",
    examples="""
        pinnace chaos run                                        # 3 minutes
        pinnace chaos run --minutes 60 --seed 7 --save results
        pinnace chaos run --faults kill-leader,compact --report junit > chaos.xml
    """,
)
@click.option("--faults", "names", default="all", show_default=True, metavar="NAME,...", help="See `pinnace chaos faults`.")
@click.option(
    "--minutes", type=click.FloatRange(0.1, 7 * 24 * 60), default=3.0, show_default=True, help="How long faults happen."
)
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed is the same schedule.")
@click.option(
    "--report", "output", type=click.Choice(["text", "json", "junit"]), default="text", help="How to print the result."
)
@click.option("--save", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Keep history and logs in DIR.")
@click.option(
    "--nodes",
    type=click.IntRange(min=10),
    default=20,
    show_default=True,
    help="Virtual nodes; the load fills 18 at most.",
)
@click.option("--kubelets", type=POSITIVE, default=2, show_default=True, help="Kubelet processes that share the nodes.")
@click.option("--schedulers", type=click.IntRange(min=2), default=3, show_default=True, help="One leads, the others stand by.")
@click.option("--apiservers", type=click.IntRange(min=2), default=2, show_default=True, help="All serve.")
@click.option(
    "--etcd-members",
    type=click.Choice(["1", "3"]),
    default="3",
    show_default=True,
    help="With one, faults of single members hit all of etcd, and those that need three are left out.",
)
def run_verb(
    settings: Settings,
    names: str,
    minutes: float,
    seed: int,
    output: str,
    save: Path | None,
    nodes: int,
    kubelets: int,
    schedulers: int,
    apiservers: int,
    etcd_members: str,
) -> None:
    """Inject faults into a cluster under load, and judge its history.

    Faults that are named must all have their turn, or nothing is proven; all of them take some six minutes. Faults that cannot
    be done here (not root, no libfaketime, one member of etcd) are left out, and the report says which and why. The history and
    the logs are kept when the verdict is bad, and with --save.
    """
    spec = ClusterSpec(nodes, kubelets, schedulers, apiservers, etcd_members=int(etcd_members))
    repeat = f"pinnace chaos run --faults {names} --minutes {minutes:g} --seed {seed}"
    repeat += "" if spec.etcd_members == 3 else f" --etcd-members {etcd_members}"
    options = Options(spec, chosen(names), names != "all", minutes * 60, seed, repeat)
    folder = new_folder(save, f"pinnace-chaos-{seed}-")
    with running.translated(), Steps(settings) as steps:
        report = judged(run_chaos(options, folder, steps, steps.line), folder, keep=save is not None)
    text = report.to_junit() if output == "junit" else json.dumps(report.to_json(), indent=2) if output == "json" else None
    click.echo(report.to_text() if text is None else text)
    if report.status != "holds":
        raise Failure(f"the verdict is {report.status}", hint=f"look at {report.kept}", code=ExitCode.VERDICT)


chaos.add_command(faults_verb)
chaos.add_command(run_verb)
for command in scenario_verbs():
    chaos.add_command(command)


def chosen(names: str) -> list[Kind]:
    """The kinds of these names, in the order of the table. Raises Failure."""
    if names == "all":
        return list(KINDS.values())
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in KINDS:
            raise usage(
                f'there is no fault "{name}"{did_you_mean(name, list(KINDS))}', hint="`pinnace chaos faults` lists them"
            )
    if not wanted:
        raise usage("no fault is named", hint="`pinnace chaos faults` lists them")
    return [kind for kind in KINDS.values() if kind.name in wanted]
