"""The text of a lab: title, steps, predictions and hints. `labs/README.md` describes the format."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

_NAME = re.compile(r"(\d\d)-([\w-]+)\.md")
_MARK = re.compile(r"^<!-- (step|predict|hint): (.*?) -->$", re.M | re.S)
_OPTION = re.compile(r"^- ([a-z])\) (.*(?:\n  .*)*)", re.M)
_QUESTION = re.compile(r"^\*\*Predict\.\*\* (.*(?:\n(?!\n).*)*)", re.M)
_COMMENT = re.compile(r"^<!-- .*?-->\n?", re.M | re.S)
_FENCE = re.compile(r"^```console(.*)\n((?:.*\n)*?)```$", re.M)
_REPEAT = "(Repeat until the output matches. `...` stands for any text.)"
_UP = re.compile(r"^\$ ((?:\w+=\S+ )*pinnace up .*)$", re.M)
_FACT = re.compile(r"^\| (question|time|difficulty|needs) \| (.*?) \|$", re.M)


@dataclass(frozen=True)
class Prediction:
    id: str
    question: str
    options: dict[str, str]
    """By letter."""
    answer: str


@dataclass
class LabStep:
    id: str
    title: str
    predictions: list[Prediction] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class LabDocument:
    number: int
    path: Path
    title: str
    facts: dict[str, str]
    """question, time, difficulty, needs: the table at the top."""
    steps: list[LabStep]
    up: str = ""
    """The command that starts the lab's cluster; "" if it has none."""

    @property
    def predictions(self) -> list[Prediction]:
        return [prediction for step in self.steps for prediction in step.predictions]


def read_passage(document: LabDocument, answered: Collection[str]) -> str:
    """Return the text that follows the last answered question, up to the next question, without markup."""
    text = document.path.read_text(encoding="utf-8")
    begin, end = 0, len(text)
    for mark in _MARK.finditer(text):
        if mark[1] != "predict":
            continue
        if mark[2].partition("=")[0].strip() not in answered:
            end = mark.start()
            break
        begin = mark.end()
    return strip_markup(text[begin:end])


def strip_markup(text: str) -> str:
    """Return the text as a learner reads it: without comments, which contain answers and hints, and without options for
    tests."""
    return re.sub(r"\n{3,}", "\n\n", _COMMENT.sub("", _FENCE.sub(_make_readable, text))).strip() + "\n"


def _make_readable(block: re.Match[str]) -> str:
    """Return the block without its options for the test."""
    note = f"\n\n{_REPEAT}" if "eventually=" in block[1] else ""
    return f"```console\n{block[2]}```{note}"


def labs_folder() -> Path:
    """Return the folder of the texts: part of the wheel, or the folder of the repository."""
    installed = Path(__file__).with_name("text")
    return installed if installed.is_dir() else Path(__file__).parents[3] / "labs"


def list_lab_texts() -> dict[int, Path]:
    """Return the paths of the labs by number."""
    return {int(match[1]): path for path in sorted(labs_folder().glob("*.md")) if (match := _NAME.fullmatch(path.name))}


def read_document(path: Path) -> LabDocument:
    """Read the text of a lab. Raises ValueError for a text that does not follow the format."""
    text = path.read_text(encoding="utf-8")
    match = _NAME.fullmatch(path.name)
    if not match or not text.startswith("# "):
        raise ValueError(f"{path}: a lab is NN-name.md and begins with a title")
    steps: list[LabStep] = []
    ends = 0
    for mark in _MARK.finditer(text):
        kind, value = mark[1], " ".join(mark[2].split())
        if kind == "step":
            heading = re.search(r"^## (.*)$", text[mark.end() :], re.M)
            steps.append(LabStep(value, heading[1] if heading else value))
        elif not steps:
            raise ValueError(f"{path}: {kind} precedes the first step")
        elif kind == "hint":
            steps[-1].hints.append(value)
        else:
            steps[-1].predictions.append(_parse_prediction(path, value, text[ends : mark.start()]))
        ends = mark.end()
    title = text.splitlines()[0].removeprefix("# ")
    up = _UP.search(text)
    return LabDocument(int(match[1]), path, title, dict(_FACT.findall(text)), steps, up[1] if up else "")


def _parse_prediction(path: Path, mark: str, before: str) -> Prediction:
    name, _, answer = (part.strip() for part in mark.partition("="))
    questions = list(_QUESTION.finditer(before))
    if not questions:
        raise ValueError(f"{path}: prediction {name} follows no paragraph that begins with **Predict.**")
    options = {letter: " ".join(text.split()) for letter, text in _OPTION.findall(before[questions[-1].end() :])}
    if answer not in options:
        raise ValueError(f'{path}: prediction {name} has no option "{answer}"')
    return Prediction(name, " ".join(questions[-1][1].split()), options, answer)
