"""The command line of the API server: mistakes are told before anything starts."""

import pytest
from click.testing import CliRunner

from apiserver.main import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--listen", "127.0.0.1:99999"], '"127.0.0.1:99999" is not HOST:PORT'),
        (["--listen", "nowhere"], '"nowhere" is not HOST:PORT'),
        (["--http", "nowhere"], '"nowhere" is not HOST:PORT'),
        (["--etcd", ","], "name at least one address"),
    ],
)
def test_mistakes(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2 and message in result.output
