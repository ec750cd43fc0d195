"""How the client finds its servers, and its errors when it finds none."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from pinnace.client.config import ClientConfig, ConfigError, config_path, load, parse_endpoints, remove_context, write_context
from pinnace.runtime.tls import TlsFiles

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters:
- name: far
  cluster: {server: "https://far.example:7443", certificate-authority: ca.crt}
contexts:
- name: far
  context: {cluster: far, user: me, namespace: work}
- name: broken
  context: {cluster: nowhere, user: me}
users:
- name: me
  user: {client-certificate: me.crt, client-key: keys/me.key}
current-context: far
"""


TLS = TlsFiles(Path("/pki/ca.crt"), Path("/pki/me.crt"), Path("/pki/me.key"))
ONE, TWO = ClientConfig(("127.0.0.1:1",)), ClientConfig(("127.0.0.1:2",))
LOCAL = ClientConfig(("127.0.0.1:3",), data_dir=Path("/data"), tls=TLS)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"KUBECONFIG": str(tmp_path / "deep" / "config")}


@pytest.fixture
def file(environ: dict[str, str]) -> Path:
    path = Path(environ["KUBECONFIG"])
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
    assert load("arg:1", environ=environ).endpoints == ("arg:1",)
    assert load(environ=environ).endpoints == ("env:1",)


def test_current_context_is_loaded(file: Path, environ: dict[str, str]) -> None:
    config = load(environ=environ)
    assert (config.endpoints, config.namespace, config.data_dir) == (("far.example:7443",), "work", None)


def test_config_path_follows_xdg(tmp_path: Path) -> None:
    assert config_path({"XDG_CONFIG_HOME": str(tmp_path)}) == tmp_path / "pinnace" / "config"
    assert config_path({}) == Path.home() / ".config" / "pinnace" / "config"


def test_missing_file_error_has_a_hint(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="does not exist") as caught:
        load(environ=environ)
    assert "pinnace up" in caught.value.hint
    assert "--server" in caught.value.hint


@pytest.mark.parametrize("text", ["[", "- a", "kind: Pod", "\x00"])
def test_malformed_file_is_named(file: Path, environ: dict[str, str], text: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(environ=environ)
    assert str(file) in caught.value.hint


def test_unknown_context_lists_the_known_ones(file: Path, environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r'no context "near" \(known: far, broken\)'):
        load(context="near", environ=environ)


def test_context_with_an_unknown_cluster(file: Path, environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match='no cluster "nowhere"'):
        load(context="broken", environ=environ)


def test_written_context_can_be_loaded(tmp_path: Path, environ: dict[str, str]) -> None:
    found = ClientConfig(("127.0.0.1:1", "127.0.0.1:2"), data_dir=tmp_path / "data", tls=TLS)
    write_context("pinnace", found, environ=environ)
    assert load(environ=environ) == found


def test_write_and_remove_keep_other_contexts(file: Path, environ: dict[str, str]) -> None:
    before = yaml.safe_load(KUBECONFIG)
    write_context("pinnace", ONE, environ=environ)
    write_context("pinnace", TWO, environ=environ)
    assert load(environ=environ).endpoints == ("127.0.0.1:2",)
    assert load(context="far", environ=environ).endpoints == ("far.example:7443",)
    remove_context("pinnace", environ=environ)
    after = yaml.safe_load(file.read_text())
    assert after == {**before, "current-context": ""}


def test_remove_without_a_file_creates_none(environ: dict[str, str]) -> None:
    remove_context("pinnace", environ=environ)
    assert not config_path(environ).exists()


def test_file_is_deleted_with_the_last_context(tmp_path: Path) -> None:
    for environ, left in (
        ({"XDG_CONFIG_HOME": str(tmp_path / "a")}, tmp_path / "a"),
        ({"KUBECONFIG": str(tmp_path / "b" / "config")}, tmp_path / "b"),
    ):
        write_context("one", ONE, environ=environ)
        write_context("two", TWO, environ=environ)
        remove_context("two", environ=environ)
        assert load(context="one", environ=environ).endpoints == ("127.0.0.1:1",)
        with pytest.raises(ConfigError, match="current-context is not set") as caught:
            load(environ=environ)
        assert caught.value.hint == "choose a context with --context: one"
        remove_context("one", environ=environ)
        assert left.is_dir() and not list(left.iterdir())


def test_concurrent_writers_lose_no_context(tmp_path: Path) -> None:
    environ, names = {"XDG_CONFIG_HOME": str(tmp_path)}, list("abcd")

    def come_and_go(name: str) -> None:
        for _ in range(4):
            write_context(name, ONE, environ=environ)
            remove_context(name, environ=environ)
        write_context(name, ONE, environ=environ)

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(come_and_go, names))
    assert [load(context=name, environ=environ) for name in names] == [ONE] * len(names)
    assert [path.name for path in config_path(environ).parent.iterdir()] == ["config"]


def test_unknown_kubeconfig_fields_are_kept(file: Path, environ: dict[str, str]) -> None:
    file.write_text("{apiVersion: v1, kind: Config, extensions: [{name: theirs}]}")
    remove_context("pinnace", environ=environ)
    assert yaml.safe_load(file.read_text())["extensions"] == [{"name": "theirs"}]


def test_file_without_contexts_error_has_a_hint(file: Path, environ: dict[str, str]) -> None:
    file.write_text("{apiVersion: v1, kind: Config, contexts: []}")
    with pytest.raises(ConfigError, match="no configuration has been provided") as caught:
        load(environ=environ)
    assert "pinnace up" in caught.value.hint


def test_failed_write_leaves_the_file_unchanged(file: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(yaml, "safe_dump", broken)
    with pytest.raises(OSError, match="disk full"):
        write_context("pinnace", ONE, environ=environ)
    assert file.read_text() == KUBECONFIG
    assert [path.name for path in file.parent.iterdir()] == ["config"]


def test_certificate_paths_are_relative_to_the_file(file: Path, environ: dict[str, str]) -> None:
    folder = file.parent
    assert load(environ=environ).tls == TlsFiles(folder / "ca.crt", folder / "me.crt", folder / "keys" / "me.key")


def test_given_servers_replace_only_the_endpoints_of_the_context(file: Path, environ: dict[str, str]) -> None:
    environ["KUBECONFIG"] = str(write_context("local", LOCAL, file=file))
    for named in ("other:1", "https://other:1"):
        assert load(named, environ=environ) == replace(LOCAL, endpoints=("other:1",))
        assert load(environ=environ | {"PINNACE_SERVER": named}) == replace(LOCAL, endpoints=("other:1",))
        assert load(named, context="far", environ=environ).namespace == "work"
    assert load("http://other:1", environ=environ) == replace(LOCAL, endpoints=("other:1",), tls=None)


def test_given_context_overrides_the_server_of_the_environment(file: Path, environ: dict[str, str]) -> None:
    environ["PINNACE_SERVER"] = "env:1"
    assert load(context="far", environ=environ).endpoints == ("far.example:7443",)
    assert load("arg:1", context="far", environ=environ).endpoints == ("arg:1",)


def test_given_file_overrides_the_environment(file: Path, tmp_path: Path) -> None:
    environ = {"KUBECONFIG": str(tmp_path / "nothing")}
    assert load(file=file, environ=environ).endpoints == ("far.example:7443",)
    assert load("other:1", file=file, environ=environ).tls is not None
    with pytest.raises(ConfigError, match="does not exist"):
        load("other:1", file=tmp_path / "nothing", environ=environ)


@pytest.mark.parametrize("user", ["{token: s3cret}", "{tokenFile: token}"])
def test_user_with_a_token(file: Path, environ: dict[str, str], user: str) -> None:
    (file.parent / "token").write_text("s3cret\n")
    file.write_text(KUBECONFIG.replace("{client-certificate: me.crt, client-key: keys/me.key}", user))
    assert load(environ=environ).tls == TlsFiles(file.parent / "ca.crt", token="s3cret")


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ("{tokenFile: nothing}", "unable to read the token"),
        ("{client-certificate: me.crt}", "client-key is missing$"),
        ("{client-certificate-data: aGk=, client-key-data: aGk=}", "`client-certificate-data` is not supported: use a file"),
    ],
)
def test_unusable_credentials(file: Path, environ: dict[str, str], user: str, message: str) -> None:
    file.write_text(KUBECONFIG.replace("{client-certificate: me.crt, client-key: keys/me.key}", user))
    with pytest.raises(ConfigError, match=message):
        load(environ=environ)
