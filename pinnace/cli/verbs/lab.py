"""`pinnace lab`: lists the labs, records predictions, and checks the steps on the cluster.

Predictions are stored in `$XDG_STATE_HOME/pinnace/labs.json`. `check` compares them with the answers when all steps are done.
"""

import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import click

from pinnace.cli.command import VerbGroup, verb
from pinnace.cli.local import clusters, running
from pinnace.cli.local.running import Steps
from pinnace.cli.outcomes import ExitCode, Failure, Reported, usage_failure
from pinnace.cli.servers import load_configuration
from pinnace.cli.session import CommandSession, run_session
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import Table, print_note, print_result
from pinnace.client.client import Client
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.errors import ClusterError
from pinnace.runtime import process
from pinnace.verification.labs.checks import CheckFailed, list_checks, needs_cluster
from pinnace.verification.labs.document import (
    LabDocument,
    LabStep,
    Prediction,
    list_lab_texts,
    read_document,
    read_passage,
    strip_markup,
)

STATE = "labs.json"
number_argument = click.argument("number", type=click.IntRange(min=0), required=False, metavar="[NUMBER]")


@click.group("lab", cls=VerbGroup)
def lab() -> None:
    """List and start labs, and check their steps.

    A lab is a page to read and follow in a terminal. The steps of lab N are checked on the cluster that the lab starts, in a
    folder with the name lab-N. The steps of lab 9 are checked in the files of the current directory.
    """


@verb("list", examples="pinnace lab list")
def list_(settings: Settings) -> None:
    """List the labs."""
    documents = [read_document(path) for path in list_lab_texts().values()]
    rows = [
        (str(document.number), _format_title(document), document.facts.get("time", ""), document.facts.get("difficulty", ""))
        for document in documents
    ]
    print_result(Table(("LAB", "TITLE", "TIME", "DIFFICULTY")).render(rows))


@verb("start", examples="pinnace lab start 1")
@click.argument("number", type=click.IntRange(min=0))
def start(settings: Settings, number: int) -> None:
    """Start a lab: print its facts and the path of its text. Starting a lab again keeps its predictions.

    `pinnace lab read` prints the text without the answers. The file contains them as comments, which a Markdown viewer hides.
    """
    document = _find_document(number)
    state = _read_state()
    print_result(f"Lab {document.number}: {_format_title(document)}\n")
    for name, value in document.facts.items():
        print_result(f"  {name:<12}{value}\n")
    print_result(f"  {'text':<12}{document.path}\n")
    if document.predictions:
        print_result(f"{_format_recorded_count(document, _recorded_predictions(state, number))}\n")
    print_result("`pinnace lab read` prints the text up to the next question\n")
    state["current"] = number
    _write_state(state)


@verb(
    "read",
    examples="""
        pinnace lab read                # the lab that was started last, up to the next question
        pinnace lab read 4 --all        # the whole text
    """,
)
@number_argument
@click.option("--all", "whole", is_flag=True, help="Print the whole text.")
def read_(settings: Settings, number: int | None, whole: bool) -> None:
    """Print the text of a lab up to the next question, without answers and hints.

    After `pinnace lab predict`, it prints the text that follows the question.
    """
    document = _find_document(_find_current_lab(number))
    if whole:
        print_result(strip_markup(document.path.read_text(encoding="utf-8")))
        return
    recorded = _recorded_predictions(_read_state(), document.number)
    print_result(read_passage(document, recorded))
    if any(prediction.id not in recorded for prediction in document.predictions):
        print_note("`pinnace lab predict` records your prediction; then `pinnace lab read` prints the text that follows")


@verb(
    "predict",
    examples="""
        pinnace lab predict                 # asks the next question of the lab that was started last
        pinnace lab predict 4 kill          # asks one question
        pinnace lab predict 4 kill=b        # records an answer
    """,
)
@number_argument
@click.argument("given", nargs=-1, metavar="[QUESTION[=ANSWER]]...")
def predict(settings: Settings, number: int | None, given: tuple[str, ...]) -> None:
    """Record predictions of a lab. Run it at each question of the text.

    Without an answer, it asks in the terminal: the named questions, or the first question without a prediction.
    """
    document = _find_document(_find_current_lab(number))
    if not document.predictions:
        raise Failure(f"lab {document.number} asks for no predictions")
    known = {prediction.id: prediction for prediction in document.predictions}
    answers = _parse_predictions(known, given)
    state = _read_state()
    kept = _recorded_predictions(state, document.number)
    if not given:
        answers = dict.fromkeys([prediction.id for prediction in document.predictions if prediction.id not in kept][:1], "")
    for name, answer in answers.items():
        if not answer and not (sys.stdin.isatty() and sys.stdout.isatty()):
            letters = "|".join(known[name].options)
            raise usage_failure(
                "the question cannot be asked without a terminal",
                hint=f"use `pinnace lab predict {document.number} {name}=ANSWER`, where ANSWER is {letters}",
            )
        kept[name] = answer or _ask_prediction(known[name])
    _write_state(state)
    print_result(f"{_format_recorded_count(document, kept)}\n")


@verb(
    "check",
    examples="""
        pinnace lab check               # all steps of the lab that was started last
        pinnace lab check 1 taint       # one step
        pinnace lab check 1 --context pinnace-other   # on a cluster that the lab did not start
    """,
)
@number_argument
@click.argument("step", required=False, metavar="[STEP]")
def check(settings: Settings, number: int | None, step: str | None) -> None:
    """Check the steps of a lab on its cluster.

    The cluster of lab N is the current one, if its folder has the name lab-N. --context or --server selects any other cluster.

    The checks read the cluster and can be repeated. The exit code is 10 if a check fails. An arrow marks the first step that is
    not done. If all steps pass, the recorded predictions are compared with the answers.
    """
    document = _find_document(_find_current_lab(number))
    known = list_checks(document.number)
    if step and step not in known:
        message = f'lab {document.number} has no check "{step}"'
        raise Failure(message, hint=f"there are {', '.join(known)}", code=ExitCode.NOT_FOUND)

    async def ask(client: Client) -> None:
        passed = await _check_step(client, document, step) if step else await _check_steps(client, document)
        if not passed:
            print_note(f"`pinnace lab hint {document.number}` shows a hint")
            raise Reported(ExitCode.VERDICT)
        if not step:
            _compare_predictions(document)

    _run_checks(settings, document, ask, names_cluster=not step)


@verb("hint", examples="pinnace lab hint 1")
@number_argument
def hint(settings: Settings, number: int | None) -> None:
    """Show a hint for the first step whose check fails. Without the cluster of the lab, this is the first step."""
    document = _find_document(_find_current_lab(number))

    def tell(step: LabStep, message: str) -> None:
        print_result(f"{step.id}: {message}\n")
        for line in step.hints:
            print_result(f"hint: {line}\n")

    async def ask(client: Client) -> None:
        for step in document.steps:
            if message := await _failure_of_check(client, document.number, step.id):
                tell(step, message)
                return
        print_result(f"all steps of lab {document.number} are done\n")

    try:
        _run_checks(settings, document, ask)
    except Failure as error:
        if error.report.code not in (ExitCode.UNAVAILABLE, ExitCode.CONFLICT) or _names_cluster(settings):
            raise
        tell(document.steps[0], error.report.lines[0])


@verb("reset", examples="pinnace lab reset 1")
@number_argument
def reset(settings: Settings, number: int | None) -> None:
    """Delete the cluster of a lab and the recorded predictions.

    The cluster of lab N is the one of the current context, if its folder has the name lab-N. Other clusters are not touched.
    """
    document = _find_document(_find_current_lab(number))
    state = _read_state()
    if state["labs"].pop(str(document.number), None) is not None:
        print_result(f"deleted the predictions of lab {document.number}\n")
    if state.get("current") == document.number:
        del state["current"]
    _write_state(state)
    if not needs_cluster(document.number):
        print_result(f"lab {document.number} has no cluster\n")
        return
    try:
        folder = clusters.present_data_dir(settings, None)
        cluster = Cluster.load(folder)
    except (ClusterError, Failure):
        print_result(f"lab {document.number} has no cluster\n")
        return
    if folder.name != _folder_name(document):
        print_result(f"the current cluster, in {folder}, is not the one of lab {document.number}: it is kept\n")
        return
    written = cluster.folder.kubeconfigs()
    clusters.check_removable(settings, folder, written)
    with running.translate_cluster_errors(), Steps(settings) as steps:
        running.run_coroutine(running.remove_cluster(cluster, steps))
    clusters.remove_context(settings, folder, written)


for command in (list_, start, read_, predict, check, hint, reset):
    lab.add_command(command)


def _format_title(document: LabDocument) -> str:
    return document.title.partition(": ")[2] or document.title


def _find_document(number: int) -> LabDocument:
    result = list_lab_texts()
    if number not in result:
        known = ", ".join(map(str, result))
        raise Failure(f"there is no lab {number}", hint=f"there are {known}; see `pinnace lab list`", code=ExitCode.NOT_FOUND)
    return read_document(result[number])


def _find_current_lab(number: int | None) -> int:
    result = _read_state().get("current") if number is None else number
    if result is None:
        raise usage_failure("which lab?", hint="give its number, or start one with `pinnace lab start N`")
    return int(result)


def _run_checks(
    settings: Settings, document: LabDocument, ask: Callable[[Client], Awaitable[None]], *, names_cluster: bool = True
) -> None:
    """Run checks, and print the name of their cluster first. Those of a lab without a cluster get no client."""

    async def without_client() -> None:
        await ask(cast(Client, None))

    if not needs_cluster(document.number):
        process.run_command(without_client())
        return
    cluster = _checked_cluster(settings, document)

    async def name_and_ask(session: CommandSession) -> None:
        if names_cluster or _names_cluster(settings):
            print_result(f"cluster: {cluster}\n")
        await ask(session.client)

    run_session(settings, name_and_ask)


def _folder_name(document: LabDocument) -> str:
    """Return the name of the data directory in the lab's `pinnace up`."""
    return f"lab-{document.number}"


def _names_cluster(settings: Settings) -> bool:
    """Return whether the user has selected the cluster for this command."""
    return bool(settings.context or settings.server or os.environ.get("PINNACE_SERVER"))


def _checked_cluster(settings: Settings, document: LabDocument) -> str:
    """Return the folder of the cluster whose objects are checked, or its addresses if it is not local. Raises Failure if there
    is none, or if the lab did not start it, unless the user has selected it. The hint contains the lab's command."""
    start = f"start the cluster of lab {document.number}: `{document.up}`"
    try:
        config = load_configuration(settings)
    except Failure as failure:
        if _names_cluster(settings):
            raise
        raise Failure(failure.report.lines[0], hint=start, code=failure.report.code) from failure
    named = str(config.data_dir or ", ".join(config.endpoints))
    if not _names_cluster(settings) and (config.data_dir is None or config.data_dir.name != _folder_name(document)):
        raise Failure(
            f"the current cluster, {named}, is not the one of lab {document.number}",
            hint=f"{start}; --context NAME checks any other one",
            code=ExitCode.CONFLICT,
        )
    return named


async def _check_step(client: Client, document: LabDocument, step: str) -> bool:
    """Print the result of one check. Return whether it has passed."""
    try:
        print_result(f"✓ {step}  {await list_checks(document.number)[step](client)}\n")
    except CheckFailed as error:
        print_result(f"✗ {step}  {error}\n")
        return False
    return True


async def _check_steps(client: Client, document: LabDocument) -> bool:
    """Print the result of all checks: what the first failing one misses, and the later ones as not done yet. Return whether
    all have passed."""
    known = list_checks(document.number)
    width, passed = max(map(len, known), default=0), True
    for step, check in known.items():
        try:
            print_result(f"✓ {step:<{width}}  {await check(client)}\n")
        except CheckFailed as error:
            print_result(f"→ {step:<{width}}  {error}\n" if passed else f"· {step:<{width}}  not done yet\n")
            passed = False
    return passed


async def _failure_of_check(client: Client, number: int, step: str) -> str:
    try:
        await list_checks(number)[step](client)
    except CheckFailed as error:
        return str(error)
    return ""


def _compare_predictions(document: LabDocument) -> None:
    recorded = _read_state()["labs"].get(str(document.number), {}).get("predictions", {})
    titles = {prediction.id: step.title for step in document.steps for prediction in step.predictions}
    for prediction in document.predictions:
        if prediction.id not in recorded:
            continue
        answer = recorded[prediction.id]
        right = f'the answer is {prediction.answer}) {prediction.options[prediction.answer]}; see "{titles[prediction.id]}"'
        verdict = "was right" if answer == prediction.answer else right
        print_result(f"prediction {prediction.id}: {answer}) {prediction.options.get(answer, '')}: {verdict}\n")


def _recorded_predictions(state: Mapping[str, Any], number: int) -> dict[str, str]:
    """Return the recorded answers of a lab, to be changed in place."""
    result: dict[str, str] = state["labs"].setdefault(str(number), {}).setdefault("predictions", {})
    return result


def _format_recorded_count(document: LabDocument, kept: Mapping[str, str]) -> str:
    return f"{len(kept)} of {len(document.predictions)} predictions recorded"


def _ask_prediction(prediction: Prediction) -> str:
    print_result(f"{prediction.question}\n")
    for letter, text in prediction.options.items():
        print_result(f"  {letter}) {text}\n")
    answer: str = click.prompt("Your prediction", type=click.Choice([*prediction.options]), show_choices=False)
    return answer


def _parse_predictions(known: Mapping[str, Prediction], given: Sequence[str]) -> dict[str, str]:
    """Parse "QUESTION=ANSWER" and "QUESTION". The answer is empty if it is missing."""
    result = {}
    for text in given:
        name, _, answer = text.partition("=")
        if name not in known:
            raise usage_failure(f'there is no prediction "{name}"', hint=f"there are {', '.join(known)}")
        if answer and answer not in known[name].options:
            there = ", ".join(known[name].options)
            raise usage_failure(f'"{answer}" is no answer of {name}', hint=f"the answers are {there}")
        result[name] = answer
    return result


def _state_path() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "pinnace" / STATE


def _read_state() -> dict[str, Any]:
    """Return the state. A file that cannot be read counts as empty."""
    try:
        result = json.loads(_state_path().read_text())
    except (OSError, ValueError):
        result = {}
    valid = isinstance(result, dict) and isinstance(result.get("labs"), dict)
    return result if valid else {"labs": {}}


def _write_state(state: Mapping[str, Any]) -> None:
    path = _state_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(state, indent=2) + "\n")
    except OSError as error:
        raise Failure(f"the predictions cannot be recorded in {path}: {error.strerror}") from error
