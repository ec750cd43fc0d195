"""The command line of the API server: invalid options are reported before anything starts."""

import sys

import pytest
from click.testing import CliRunner

from pinnace.apiserver.main import main

KUBELETS = [
    *("--kubelet-certificate-authority", __file__),
    *("--kubelet-client-certificate", __file__),
    *("--kubelet-client-key", __file__),
]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--listen", "127.0.0.1:99999"], '"127.0.0.1:99999" is not HOST:PORT'),
        (["--listen", "nowhere"], '"nowhere" is not HOST:PORT'),
        (["--http", "nowhere"], '"nowhere" is not HOST:PORT'),
        (["--etcd", ","], "at least one address is required"),
        (["--etcd-prefix", "staging"], '"staging" is not a prefix: it must start with "/" and not end with it'),
        (["--etcd-prefix", "/registry"], 'cannot contain the segment "registry"'),
        (["--etcd-cafile", __file__], "--etcd-cafile, --etcd-certfile and --etcd-keyfile must be set together"),
        (["--etcd-cafile", "/nowhere/ca.crt"], "'/nowhere/ca.crt' does not exist"),
        (["--etcd-compaction-interval", "-1"], "is not in the range x>=0"),
        (["--token-listen", "nowhere"], '"nowhere" is not HOST:PORT'),
        (["--token-listen", "127.0.0.1:0"], "--token-listen requires --token-auth-file"),
        (
            ["--insecure", "--token-auth-file", __file__, "--token-listen", "127.0.0.1:0"],
            "--token-auth-file cannot be used with --insecure",
        ),
        (["--insecure", "--tracing-endpoint", "http://nowhere"], '"http://nowhere" is not HOST:PORT'),
        ([], "are required; create the files with `pinnace pki`, or use --insecure"),
        (["--insecure", "--admission-control-config-file", __file__], "--admission-control-config-file"),
        (["--insecure", *KUBELETS], "Invalid value for --kubelet-client-certificate"),
        (
            ["--tls-cert-file", __file__, "--client-ca-file", __file__],
            "--tls-cert-file, --tls-private-key-file and",
        ),
    ],
)
def test_invalid_options_are_usage_errors(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2 and message in result.output


def test_tracing_needs_an_optional_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pinnace.runtime.otel", None)
    result = CliRunner().invoke(main, ["--insecure", "--tracing-endpoint", "127.0.0.1:4317"])
    assert result.exit_code == 2 and "pip install 'pinnace[tracing]'" in result.output
