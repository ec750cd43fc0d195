"""How the client finds its servers and credentials, and its errors when it finds none."""

import base64
from dataclasses import replace
from pathlib import Path

import pytest

from pinnace.client.config import ClientConfig, ConfigError, known_contexts, load_config, parse_endpoints
from pinnace.client.contexts import write_context
from pinnace.runtime.tls import TlsFiles

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters:
- name: far
  cluster:
    server: https://gateway.example
    certificate-authority: ca.crt
    extensions: [{name: pinnace.io/cluster, extension: {servers: ["far.example:7443"]}}]
- name: kind
  cluster: {server: "https://127.0.0.1:41234", certificate-authority-data: TFMw}
contexts:
- name: far
  context: {cluster: far, user: me, namespace: work}
- name: broken
  context: {cluster: nowhere, user: me}
- name: kind
  context: {cluster: kind, user: me}
users:
- name: me
  user: {client-certificate: me.crt, client-key: keys/me.key}
current-context: far
"""
ME = "{client-certificate: me.crt, client-key: keys/me.key}"
TLS = TlsFiles(Path("/pki/ca.crt"), Path("/pki/me.crt"), Path("/pki/me.key"))
LOCAL = ClientConfig(("127.0.0.1:3",), data_dir=Path("/data"), tls=TLS)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / ".kube" / "config"
    path.parent.mkdir()
    path.write_text(KUBECONFIG)
    return path


@pytest.mark.parametrize(
    ("text", "endpoints"),
    [
        ("a:1", ("a:1",)),
        ("a", ("a:7443",)),
        ("a:1, b:2", ("a:1", "b:2")),
        ("https://a:1/,http://b", ("a:1", "b:7443")),
        ("[::1]:7443", ("[::1]:7443",)),
    ],
)
def test_endpoint_formats(text: str, endpoints: tuple[str, ...]) -> None:
    assert parse_endpoints(text) == endpoints


@pytest.mark.parametrize("text", ["", ",", "a:b", "a:0", "a:70000", ":1", "a:1/path", "a:²", "a:" + "9" * 5000])
def test_malformed_endpoint_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_endpoints(text)


def test_argument_overrides_the_environment(file: Path, environ: dict[str, str]) -> None:
    environ["PINNACE_SERVER"] = "env:1"
    assert load_config("arg:1", environ=environ).endpoints == ("arg:1",)
    assert load_config(environ=environ).endpoints == ("env:1",)


def test_current_context_is_loaded(file: Path, environ: dict[str, str]) -> None:
    config = load_config(environ=environ)
    assert (config.endpoints, config.namespace, config.data_dir) == (("far.example:7443",), "work", None)


def test_missing_file_error_has_a_hint(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="does not exist") as caught:
        load_config(environ=environ)
    assert "pinnace up" in caught.value.hint
    assert "--server" in caught.value.hint


@pytest.mark.parametrize("text", ["[", "- a", "kind: Pod", "\x00"])
def test_malformed_file_is_named(file: Path, environ: dict[str, str], text: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(environ=environ)
    assert str(file) in caught.value.hint


def test_unknown_context_lists_the_known_ones(file: Path, environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r'no context "near" \(known: far\)'):
        load_config(context="near", environ=environ)


def test_context_with_an_unknown_cluster(file: Path, environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match='no cluster "nowhere"'):
        load_config(context="broken", environ=environ)


def test_file_without_contexts_error_has_a_hint(file: Path, environ: dict[str, str]) -> None:
    file.write_text("{apiVersion: v1, kind: Config, contexts: []}")
    with pytest.raises(ConfigError, match="no configuration has been provided") as caught:
        load_config(environ=environ)
    assert "pinnace up" in caught.value.hint


def test_certificate_paths_are_relative_to_the_file(file: Path, environ: dict[str, str]) -> None:
    folder = file.parent
    assert load_config(environ=environ).tls == TlsFiles(folder / "ca.crt", folder / "me.crt", folder / "keys" / "me.key")


def test_given_context_overrides_the_server_of_the_environment(file: Path, environ: dict[str, str]) -> None:
    environ["PINNACE_SERVER"] = "env:1"
    assert load_config(context="far", environ=environ).endpoints == ("far.example:7443",)
    assert load_config("arg:1", context="far", environ=environ).endpoints == ("arg:1",)


@pytest.mark.parametrize("user", ["{token: s3cret}", "{tokenFile: token}"])
def test_user_with_a_token(file: Path, environ: dict[str, str], user: str) -> None:
    (file.parent / "token").write_text("s3cret\n")
    file.write_text(KUBECONFIG.replace(ME, user))
    assert load_config(environ=environ).tls == TlsFiles(file.parent / "ca.crt", token="s3cret")


def test_written_context_can_be_loaded(tmp_path: Path, environ: dict[str, str]) -> None:
    for config in (
        ClientConfig(("127.0.0.1:1", "127.0.0.1:2"), data_dir=tmp_path / "data", tls=TLS, gateway="127.0.0.1:3"),
        ClientConfig(("127.0.0.1:1",)),
        ClientConfig(("127.0.0.1:1",), tls=TlsFiles(TLS.ca, token="s3cret")),
    ):
        assert load_config(file=write_context("pinnace", config, file=tmp_path / "file"), environ=environ) == config


@pytest.mark.parametrize("cluster", ['{server: "127.0.0.1:1,127.0.0.1:2"}', "{server: 'a:1', extensions: []}"])
def test_file_of_a_component_may_name_the_servers_only(file: Path, environ: dict[str, str], cluster: str) -> None:
    file.write_text(f"{{contexts: [{{name: a, context: {{cluster: a}}}}], clusters: [{{name: a, cluster: {cluster}}}]}}")
    assert load_config(context="a", file=file, environ=environ).tls is None


def test_given_servers_replace_only_the_endpoints_of_the_context(file: Path, tmp_path: Path, environ: dict[str, str]) -> None:
    environ["KUBECONFIG"] = str(write_context("local", LOCAL, file=tmp_path / "local"))
    for named in ("other:1", "https://other:1"):
        assert load_config(named, environ=environ) == replace(LOCAL, endpoints=("other:1",))
        assert load_config(environ=environ | {"PINNACE_SERVER": named}) == replace(LOCAL, endpoints=("other:1",))
        assert load_config(named, context="far", file=file, environ=environ).namespace == "work"
    assert load_config("http://other:1", environ=environ) == replace(LOCAL, endpoints=("other:1",), tls=None)


def test_given_servers_never_get_the_credentials_of_a_foreign_context(file: Path, environ: dict[str, str]) -> None:
    file.write_text(KUBECONFIG.replace("current-context: far", "current-context: kind"))
    assert load_config("other:1", environ=environ) == ClientConfig(("other:1",))
    with pytest.raises(ConfigError, match="is not the one of a pinnace cluster"):
        load_config("other:1", context="kind", environ=environ)


def test_given_file_overrides_the_environment(file: Path, tmp_path: Path) -> None:
    environ = {"KUBECONFIG": str(tmp_path / "nothing")}
    assert load_config(file=file, environ=environ).endpoints == ("far.example:7443",)
    assert load_config("other:1", file=file, environ=environ).tls is not None
    with pytest.raises(ConfigError, match="does not exist"):
        load_config("other:1", file=tmp_path / "nothing", environ=environ)


def test_several_files_are_merged_and_the_first_wins(file: Path, tmp_path: Path, environ: dict[str, str]) -> None:
    first = tmp_path / "first"
    first.write_text(
        "{users: [{name: me, user: {token: s3cret}}], contexts: [{name: near, context: {cluster: far, user: me}}]}"
    )
    environ["KUBECONFIG"] = f"{tmp_path / 'none'}:{first}:{file}"
    assert load_config(environ=environ).tls == TlsFiles(file.parent / "ca.crt", token="s3cret")
    assert load_config(context="near", environ=environ).endpoints == ("far.example:7443",)


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ("{tokenFile: nothing}", "unable to read the token"),
        ("{client-certificate: me.crt}", "client-key is missing$"),
        ("{client-certificate-data: '?', client-key-data: aGk=}", "client-certificate-data is not valid base64"),
        ("{exec: {command: aws}}", "exec of a user is not supported by pinnace"),
        ("{auth-provider: {name: gcp}}", "auth-provider of a user is not supported"),
        ("{username: me, password: secret}", "username of a user is not supported"),
        ("{token: a, as-uid: '7', as: eve}", "as-uid of a user is not supported"),
        ("{token: a, as-groups: [keepers]}", "as-groups requires as"),
        ("{token: a, as: [eve]}", "`as` must be a name"),
    ],
)
def test_unusable_credentials(file: Path, environ: dict[str, str], user: str, message: str) -> None:
    file.write_text(KUBECONFIG.replace(ME, user))
    with pytest.raises(ConfigError, match=message):
        load_config(environ=environ, can_impersonate=True)


@pytest.mark.parametrize("option", ["insecure-skip-tls-verify: true", "proxy-url: http://proxy"])
def test_unsupported_fields_of_a_cluster(file: Path, environ: dict[str, str], option: str) -> None:
    file.write_text(KUBECONFIG.replace("certificate-authority: ca.crt", f"certificate-authority: ca.crt\n    {option}"))
    with pytest.raises(ConfigError, match=f"{option.partition(':')[0]} of a cluster is not supported"):
        load_config(environ=environ)


def test_data_takes_precedence_over_paths(file: Path, environ: dict[str, str]) -> None:
    data = base64.b64encode(b"PEM").decode()
    file.write_text(
        KUBECONFIG.replace(ME, f"{{client-certificate-data: {data}, client-certificate: me.crt, client-key-data: {data}}}")
    )
    tls = load_config(environ=environ).tls
    assert tls is not None and tls.cert is not None and tls.cert.read_bytes() == b"PEM"
    assert tls.cert.read_bytes() == b"PEM", "it can be read again, as for its renewal"


def test_impersonated_user_is_only_for_programs_that_send_it(file: Path, environ: dict[str, str]) -> None:
    file.write_text(KUBECONFIG.replace(ME, "{token: a, as: ada, as-groups: [keepers]}"))
    result = load_config(environ=environ, can_impersonate=True)
    assert (result.acting_as, result.acting_groups) == ("ada", ("keepers",))
    with pytest.raises(ConfigError, match="`as` of a user is not supported by this program"):
        load_config(environ=environ)


OLD = """
kind: Config
clusters: [{name: local, cluster: {server: "127.0.0.1:5", extensions: [{name: pinnace, extension: {dataDir: /old}}]}}]
contexts: [{name: local, context: {cluster: local, user: local}}]
users: [{name: local, user: {}}]
current-context: local
"""


def test_file_of_an_earlier_version_is_read_with_a_warning(
    file: Path, environ: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    old = Path(environ["HOME"], ".config", "pinnace", "config")
    old.parent.mkdir(parents=True)
    old.write_text(OLD)
    assert load_config(environ=environ).endpoints == ("far.example:7443",), "the kubeconfig has a context of pinnace"
    assert not capsys.readouterr().err
    assert load_config(context="local", environ=environ).data_dir == Path("/old")
    file.write_text(KUBECONFIG.replace("current-context: far", "current-context: kind"))
    assert load_config(environ=environ).endpoints == ("127.0.0.1:5",)
    assert load_config(environ=environ).endpoints == ("127.0.0.1:5",)
    warning = capsys.readouterr().err
    assert warning.count("\n") == 1 and warning.startswith(f"warning: {old} is deprecated")
    assert known_contexts(environ=environ).keys() == {"far", "local"}


def test_pinnace_config_is_read_with_a_warning(
    file: Path, tmp_path: Path, environ: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    environ["PINNACE_CONFIG"] = str(tmp_path / "old")
    assert load_config(environ=environ).endpoints == ("far.example:7443",)
    assert "its file is missing: use KUBECONFIG" in capsys.readouterr().err
    (tmp_path / "old").write_text(OLD)
    assert load_config(environ=environ).endpoints == ("127.0.0.1:5",)
    assert capsys.readouterr().err == "warning: PINNACE_CONFIG is deprecated: use KUBECONFIG\n"
