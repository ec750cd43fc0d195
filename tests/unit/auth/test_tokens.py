"""Tokens of people, from a file."""

from pathlib import Path

import pytest

from pinnace.api.users import AUTHENTICATED
from pinnace.apiserver.auth.authentication import CHECK_INTERVAL, TokenFile, User
from tests.clock import FakeClock


def test_token_is_its_users(tmp_path: Path) -> None:
    file = tmp_path / "tokens.csv"
    file.write_text('s3cret,eve,1,"developers, operators"\nother,vera,2\n\n# a remark\n')
    tokens = TokenFile(file)
    assert tokens.user("s3cret") == User("eve", ("developers", "operators", AUTHENTICATED))
    assert tokens.user("other") == User("vera", (AUTHENTICATED,))
    assert [tokens.user(name) for name in ("", "s3cre", "s3cret ", "eve", "# a remark")] == [None] * 5


def test_file_that_changes_is_read_again(tmp_path: Path) -> None:
    file, clock = tmp_path / "tokens.csv", FakeClock()
    file.write_text("old,eve,1\n")
    tokens = TokenFile(file, clock)
    file.write_text("newer,eve,1\n")
    clock.stall(CHECK_INTERVAL)
    assert tokens.user("old") is None
    assert tokens.user("newer") is not None


def test_file_that_is_gone_changes_nothing(tmp_path: Path) -> None:
    file, clock = tmp_path / "tokens.csv", FakeClock()
    file.write_text("old,eve,1\n")
    tokens = TokenFile(file, clock)
    file.unlink()
    clock.stall(CHECK_INTERVAL)
    assert tokens.user("old") is not None


def test_no_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nothing"):
        TokenFile(tmp_path / "nothing")


@pytest.mark.parametrize("line", ["alone", "token,", ",eve,1", "token,eve", 'a,b,c,"d",e'])
def test_invalid_token_line_is_reported_by_number_only(tmp_path: Path, caplog: pytest.LogCaptureFixture, line: str) -> None:
    file = tmp_path / "tokens.csv"
    file.write_text(f"{line}\ngood,vera,2\n")
    assert TokenFile(file).user("good") is not None
    assert "line 1" in caplog.text and "token,eve" not in caplog.text.replace("token,user,uid", "")


@pytest.mark.parametrize("groups", ['"dev', '"dev,', '"dev"s', '"' + "x" * 200_000])
def test_missing_quote_does_not_merge_groups_of_other_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, groups: str
) -> None:
    file = tmp_path / "tokens.csv"
    file.write_text(f'tok1,eve,1,{groups}\ntok2,root,2,system:masters\ntok3,vera,3,"dev"\n')
    tokens = TokenFile(file)
    assert tokens.user("tok1") is None
    assert tokens.user("tok2") == User("root", ("system:masters", AUTHENTICATED))
    assert tokens.user("tok3") == User("vera", ("dev", AUTHENTICATED))
    assert "line 1:" in caplog.text and "tok1" not in caplog.text


def test_file_that_is_spoilt_while_the_server_runs_takes_effect_line_by_line(tmp_path: Path) -> None:
    file, clock = tmp_path / "tokens.csv", FakeClock()
    file.write_text('tok1,eve,1,"dev"\n')
    tokens = TokenFile(file, clock)
    file.write_text('tok1,eve,1,"dev\n' + "tok2,vera,2\n" * 20_000)
    clock.stall(CHECK_INTERVAL)
    assert tokens.user("tok1") is None
    assert tokens.user("tok2") is not None


def test_duplicate_token_belongs_to_the_first_user(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "tokens.csv"
    file.write_text("same,eve,1\nsame,mallory,2\n")
    result = TokenFile(file).user("same")
    assert result is not None and result.name == "eve"
    assert "line 2" in caplog.text and "same" not in caplog.text
