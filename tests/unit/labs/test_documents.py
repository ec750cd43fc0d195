"""The labs follow their format, and each step has a check."""

from pathlib import Path

import pytest

from pinnace.verification.labs.checks import list_checks, needs_cluster
from pinnace.verification.labs.document import LabDocument, list_lab_texts, read_document, read_passage, strip_markup

DOCUMENTS = [read_document(path) for path in list_lab_texts().values()]
HEAD = "# Lab 3: You\n\n| question | Why? |\n\n<!-- step: a -->\n## 1. First\n\n"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.path.stem)
def test_each_lab_follows_the_format(document: LabDocument) -> None:
    assert document.title.startswith(f"Lab {document.number}: ")
    assert list(document.facts) == ["question", "time", "difficulty", "needs"]
    assert 4 <= len(document.steps) <= 8
    assert document.predictions
    assert [step.id for step in document.steps] == list(list_checks(document.number)), "each step has a check, in order"
    assert all(step.hints for step in document.steps)
    assert (f"pinnace up --detach --data-dir lab-{document.number} " in document.up) == needs_cluster(document.number)
    assert f"({document.path.name})" in document.path.with_name("README.md").read_text()
    assert f"$ pinnace lab check {document.number}\n" in document.path.read_text()


def test_passage_ends_at_the_next_question_and_contains_no_answers(tmp_path: Path) -> None:
    page = tmp_path / "03-you.md"
    block = "```console eventually=9s\n$ ls\n...\n```"
    question = "**Predict.** {}?\n\n- a) Yes\n- b) No\n\n<!-- predict: {} = b -->\n\n"
    first, second = question.format("Really", "one"), question.format("Again", "two")
    page.write_text(f"{HEAD}{first}**Do.**\n\n{block}\n\n<!-- hint: Try\n it. -->\n\n{second}**Explain.** So.\n")
    document = read_document(page)
    assert read_passage(document, ()).endswith("## 1. First\n\n**Predict.** Really?\n\n- a) Yes\n- b) No\n")
    repeat = "(Repeat until the output matches. `...` stands for any text.)"
    shown = "```console\n$ ls\n...\n```"
    assert read_passage(document, ["one"]) == f"**Do.**\n\n{shown}\n\n{repeat}\n\n**Predict.** Again?\n\n- a) Yes\n- b) No\n"
    assert read_passage(document, ["one", "two"]) == "**Explain.** So.\n"
    whole = strip_markup(page.read_text())
    assert "<!--" not in whole and "Try" not in whole and "Really?" in whole and "So." in whole


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.path.stem)
def test_text_of_a_lab_contains_no_comments(document: LabDocument) -> None:
    assert "<!--" not in strip_markup(document.path.read_text()) and "predict:" not in strip_markup(document.path.read_text())


def test_predictions_have_a_question_options_and_an_answer(tmp_path: Path) -> None:
    page = tmp_path / "03-you.md"
    question = "**Predict.** What\nhappens?\n\n- a) This\n- b) Or\n  that"
    page.write_text(f"{HEAD}{question}\n\n<!-- predict: what = b -->\n<!-- hint: Try\n it. -->\n")
    document = read_document(page)
    (step,) = document.steps
    (prediction,) = document.predictions
    assert (step.id, step.title, step.hints, document.facts) == ("a", "1. First", ["Try it."], {"question": "Why?"})
    assert (prediction.id, prediction.question, prediction.answer) == ("what", "What happens?", "b")
    assert prediction.options == {"a": "This", "b": "Or that"}


@pytest.mark.parametrize(
    ("rest", "says"),
    [
        ("**Predict.** What?\n\n- a) This\n\n<!-- predict: what = c -->\n", 'what has no option "c"'),
        ("<!-- predict: what = a -->\n", "follows no paragraph"),
    ],
)
def test_format_errors_are_reported(tmp_path: Path, rest: str, says: str) -> None:
    page = tmp_path / "03-you.md"
    page.write_text(HEAD + rest)
    with pytest.raises(ValueError, match=says):
        read_document(page)
