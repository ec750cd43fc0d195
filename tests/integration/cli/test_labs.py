"""`pinnace lab`: predictions, checks, hints and reset."""

import json
import os
import pty
import subprocess
import time
from pathlib import Path
from select import select

import pytest

from pinnace.cli.outcomes import ExitCode
from pinnace.client import contexts
from pinnace.client.client import Client
from pinnace.client.config import ClientConfig
from pinnace.verification.labs.document import list_lab_texts, read_document
from tests.builders import make_node, make_pod
from tests.integration.cli.commands import Commands, command

PATIENCE = 30.0
PRICES = (1, 1, 4, 4, 9, 9)
NO_NODES = "the cluster has 0 nodes, not 6: it may be another cluster"


@pytest.fixture
def state(tmp_path: Path, pinnace: Commands) -> Path:
    """The file with the predictions of the test's commands."""
    pinnace.environment = {"XDG_STATE_HOME": str(tmp_path)}
    return tmp_path / "pinnace" / "labs.json"


def recorded(state: Path) -> object:
    """None: there is no file."""
    return json.loads(state.read_text()) if state.exists() else None


def broken(state: Path) -> None:
    state.parent.mkdir(parents=True)
    state.write_text("{")


async def nodes(client: Client) -> None:
    """Step `start` of lab 8."""
    for number, price in enumerate(PRICES):
        await client.nodes.create(make_node(f"node-{number}").capacity(cpu=4, pods=110).label("price", str(price)).new())


async def load(client: Client, app: str, scheduler: str, on: list[int]) -> None:
    """A running pod on each of these nodes."""
    for number, node in enumerate(on):
        pod = make_pod(f"{app}-{number}").req(cpu="1").label("app", app).scheduler(scheduler).node(f"node-{node}")
        created = await client.pods.create(pod.new())
        created.status.phase = "Running"
        await client.pods.update_status(created)


async def drained(client: Client) -> None:
    await client.nodes.modify("node-0", "", lambda node: setattr(node.spec, "unschedulable", True))


async def test_checks_name_what_is_missing_and_hints_follow_them(pinnace: Commands, client: Client, state: Path) -> None:
    assert (await pinnace("lab", "start", "8")).code == 0
    checked = await pinnace("lab", "check")
    assert checked.code == 10
    assert checked.lines == [
        f"cluster: {','.join(pinnace.servers)}",
        f"→ start    {NO_NODES}",
        "· default  not done yet",
        "· policy   not done yet",
        "· risk     not done yet",
    ]
    assert checked.errors == ["note: `pinnace lab hint 8` shows a hint"]
    hinted = await pinnace("lab", "hint")
    assert hinted.code == 0 and hinted.lines[1] == f"start: {NO_NODES}"
    assert hinted.lines[2].startswith("hint: `kubectl label node node-0 node-1 price=1`")

    await nodes(client)
    assert (await pinnace("lab", "check", "8", "start")).lines[1] == "✓ start  6 nodes have prices, 28 together"
    hinted = await pinnace("lab", "hint", "8")
    assert hinted.lines[1] == "default: deployment/default-load has 0 pods, of which 0 run; expected 6"

    await load(client, "default-load", "default-scheduler", [0, 1, 2, 3, 4, 5])
    await load(client, "cheap-load", "default-scheduler", [1, 1, 1, 2, 2, 2])
    checked = await pinnace("lab", "check", "8", "policy")
    assert checked.code == 10 and checked.lines[1].startswith("✗ policy")
    assert "has the schedulerName default-scheduler, not cheap" in checked.out


async def test_cluster_that_the_lab_did_not_start_is_checked_only_when_it_is_named(
    pinnace: Commands, client: Client, state: Path, tmp_path: Path
) -> None:
    """Regression: `lab check 8` checked the cluster of another lab, and did not name it."""
    (address,) = pinnace.servers
    pinnace.servers = []
    pinnace.environment = {**pinnace.environment, "KUBECONFIG": str(tmp_path / "config")}
    contexts.write_context("mine", ClientConfig((address,), data_dir=tmp_path / "lab-6"), file=tmp_path / "config")
    refused = await pinnace("lab", "check", "8")
    assert refused.code == ExitCode.CONFLICT and refused.out == ""
    assert refused.errors[0] == f"error: the current cluster, {tmp_path}/lab-6, is not the one of lab 8"
    assert "`pinnace up --detach --data-dir lab-8 --nodes 6`" in refused.errors[1] and "--context" in refused.errors[1]
    hinted = await pinnace("lab", "hint", "8")
    assert hinted.code == 0 and hinted.lines[0] == f"start: the current cluster, {tmp_path}/lab-6, is not the one of lab 8"
    named = await pinnace("lab", "check", "8", "--context", "mine")
    assert named.lines[:2] == [f"cluster: {tmp_path}/lab-6", f"→ start    {NO_NODES}"]

    contexts.write_context("own", ClientConfig((address,), data_dir=tmp_path / "lab-8"), file=tmp_path / "config")
    assert (await pinnace("lab", "check", "8")).lines[0] == f"cluster: {tmp_path}/lab-8"


async def test_predictions_are_compared_when_all_steps_are_done(pinnace: Commands, client: Client, state: Path) -> None:
    started = await pinnace("lab", "predict", "8", "default=b", "policy=c")
    assert started.out == "2 of 3 predictions recorded\n"
    await pinnace("lab", "start", "8")
    await nodes(client)
    await load(client, "default-load", "default-scheduler", [0, 1, 2, 3, 4, 5])
    await load(client, "cheap-load", "cheap", [1, 1, 1, 2, 2, 2])
    assert "prediction" not in (await pinnace("lab", "check")).out, "a step fails"
    await drained(client)
    checked = await pinnace("lab", "check")
    assert checked.code == 0
    assert [line for line in checked.lines if line.startswith("prediction")] == [
        "prediction default: b) Six: it spreads the pods: was right",
        'prediction policy: c) One node, price 1: the answer is a) Two nodes, price 2; see "3. Your policy"',
    ]
    assert "prediction" not in (await pinnace("lab", "check", "8", "risk")).out
    assert (await pinnace("lab", "hint")).lines[1:] == ["all steps of lab 8 are done"]


async def test_text_is_read_from_question_to_question(pinnace: Commands, state: Path) -> None:
    started = await pinnace("lab", "start", "8")
    assert started.lines[-1] == "`pinnace lab read` prints the text up to the next question"
    first = await pinnace("lab", "read")
    assert first.lines[0] == "# Lab 8: Your policy, measured" and first.lines[-1].startswith("- ")
    assert first.errors[0].startswith("note: `pinnace lab predict` records your prediction")
    await pinnace("lab", "predict", "8", "default=b")
    second = await pinnace("lab", "read")
    assert "## 3. Your policy" in second.lines and "# Lab 8: Your policy, measured" not in second.lines
    await pinnace("lab", "predict", "8", "policy=b", "risk=b")
    last = await pinnace("lab", "read")
    assert "## What you have seen" in last.lines and last.errors == []
    assert "## 3. Your policy" in (await pinnace("lab", "read", "--all")).lines


async def test_reset_forgets_predictions_and_touches_no_other_cluster(pinnace: Commands, state: Path) -> None:
    await pinnace("lab", "start", "8")
    await pinnace("lab", "predict", "8", "default=b")
    reset = await pinnace("lab", "reset")
    assert (reset.code, reset.out) == (0, "deleted the predictions of lab 8\nlab 8 has no cluster\n")
    assert recorded(state) == {"labs": {}}
    without = await pinnace("lab", "check")
    assert without.code == 2 and without.errors[0] == "error: which lab?"
    assert "0 of 3 predictions recorded" in (await pinnace("lab", "start", "8")).lines
    assert (await pinnace("lab", "reset", "9")).out == "lab 9 has no cluster\n"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("start", "99"), 3, "error: there is no lab 99"),
        (("check", "8", "nonsense"), 3, 'error: lab 8 has no check "nonsense"'),
        (("predict", "8", "nonsense=a"), 2, 'error: there is no prediction "nonsense"'),
        (("predict", "8", "default=z"), 2, 'error: "z" is no answer of default'),
        (("predict", "8", "default"), 2, "error: the question cannot be asked without a terminal"),
        (("predict",), 2, "error: which lab?"),
        (("read",), 2, "error: which lab?"),
    ],
)
async def test_mistakes_are_named(pinnace: Commands, state: Path, arguments: tuple[str, ...], code: int, says: str) -> None:
    ended = await pinnace("lab", *arguments)
    assert (ended.code, ended.errors[0]) == (code, says)
    assert recorded(state) is None


async def test_hint_for_a_prediction_without_a_terminal_works_as_it_is_said(pinnace: Commands, state: Path) -> None:
    await pinnace("lab", "start", "8")
    refused = await pinnace("lab", "predict")
    assert refused.code == 2
    said = refused.errors[1].partition("`pinnace ")[2].partition("`")[0]
    assert said == "lab predict 8 default=ANSWER" and refused.errors[1].endswith("where ANSWER is a|b|c")
    assert (await pinnace(*said.replace("ANSWER", "b").split())).out == "1 of 3 predictions recorded\n"


async def test_broken_file_of_predictions_counts_as_empty(pinnace: Commands, state: Path) -> None:
    broken(state)
    assert "0 of 3 predictions recorded" in (await pinnace("lab", "start", "8")).lines


async def test_without_a_cluster_the_first_hint_is_shown_and_a_check_fails(pinnace: Commands, state: Path) -> None:
    pinnace.servers = []
    hinted = await pinnace("lab", "hint", "8")
    assert hinted.code == 0 and hinted.lines[0].startswith("start: no configuration has been provided")
    assert hinted.lines[1].startswith("hint: `kubectl label node")
    checked = await pinnace("lab", "check", "8")
    assert checked.code == 6
    assert checked.errors[1] == "hint: start the cluster of lab 8: `pinnace up --detach --data-dir lab-8 --nodes 6`"


async def test_checks_of_lab_9_read_files_and_need_no_cluster(
    pinnace: Commands, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pinnace.servers = []
    checked = await pinnace("lab", "check", "9")
    assert checked.code == 10 and checked.lines[0] == f"→ right   lab-9/right.jsonl does not exist in {tmp_path}"


class Terminal:
    """A command in a terminal."""

    def __init__(self, *arguments: str, environment: dict[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            command(*arguments),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=os.environ | environment,
            start_new_session=True,
        )
        os.close(theirs)
        self.printed = ""

    def until(self, text: str, times: int = 1) -> None:
        """Read until the text was printed so often."""
        deadline = time.monotonic() + PATIENCE
        while self.printed.count(text) < times:
            assert select([self._ours], [], [], max(0.0, deadline - time.monotonic()))[0], self.printed
            self.printed += os.read(self._ours, 65536).decode()

    def answer(self, text: str) -> None:
        os.write(self._ours, f"{text}\n".encode())

    def end(self) -> int:
        try:
            return self._process.wait(PATIENCE)
        finally:
            self._process.kill()
            os.close(self._ours)


def test_each_call_of_predict_asks_the_next_question(tmp_path: Path) -> None:
    first, second, third = read_document(list_lab_texts()[8]).predictions
    environment = {"XDG_STATE_HOME": str(tmp_path), "NO_COLOR": "1"}
    prompt = "Your prediction"

    terminal = Terminal("lab", "predict", "8", environment=environment)
    terminal.until(prompt)
    assert first.question in " ".join(terminal.printed.split()) and second.question not in terminal.printed
    assert all(f"{letter}) {text}" in terminal.printed for letter, text in first.options.items())
    terminal.answer("z")
    terminal.until(prompt, 2)
    assert "'z' is not one of" in terminal.printed
    terminal.answer("b")
    terminal.until("1 of 3 predictions recorded")
    assert terminal.end() == 0

    named = Terminal("lab", "predict", "8", third.id, environment=environment)
    named.until(prompt)
    assert third.question in " ".join(named.printed.split())
    named.answer("a")
    named.until("2 of 3 predictions recorded")
    assert named.end() == 0

    again = Terminal("lab", "predict", "8", environment=environment)
    again.until(prompt)
    assert second.question in " ".join(again.printed.split())
    again.answer("a")
    again.until("3 of 3 predictions recorded")
    assert again.end() == 0
    assert recorded(tmp_path / "pinnace" / "labs.json") == {
        "labs": {"8": {"predictions": {first.id: "b", second.id: "a", third.id: "a"}}}
    }

    last = Terminal("lab", "predict", "8", environment=environment)
    last.until("3 of 3 predictions recorded")
    assert last.end() == 0 and prompt not in last.printed
