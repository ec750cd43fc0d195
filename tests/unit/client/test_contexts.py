"""The contexts of local clusters in the kubeconfig: what `up` adds, what `down` restores, and what kubectl is told."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from pinnace.client.config import ClientConfig, ConfigError, KubectlContext, current_context, find_kubectl_context, load_config
from pinnace.client.contexts import (
    WrittenContext,
    context_name,
    has_cluster_context,
    remove_cluster_context,
    stale_contexts,
    write_cluster_context,
    write_context,
)
from pinnace.runtime.tls import TlsFiles
from tests.unit.client.test_kubeconfig_text import FOREIGN

GATEWAY, OTHER_GATEWAY = "127.0.0.1:6443", "127.0.0.1:6444"


class User:
    """A user with a home directory, the files of $KUBECONFIG, and clusters in directories."""

    def __init__(self, home: Path, *kubeconfigs: str) -> None:
        self.home = home
        self.paths = [home / name for name in kubeconfigs]
        self.environ = {"HOME": str(home)} | ({"KUBECONFIG": ":".join(map(str, self.paths))} if kubeconfigs else {})
        (home / "ca.crt").write_text("CA")
        self.tls = TlsFiles(home / "ca.crt", home / "admin.crt", home / "admin.key")

    @property
    def path(self) -> Path:
        return self.paths[0] if self.paths else self.home / ".kube" / "config"

    def config(self, name: str, *servers: str, gateway: str = GATEWAY) -> ClientConfig:
        return ClientConfig(servers or ("127.0.0.1:1",), data_dir=self.home / name, tls=self.tls, gateway=gateway)

    def up(self, name: str = "default", *servers: str, gateway: str = GATEWAY, make_current: bool = True) -> WrittenContext:
        (self.home / name).mkdir(exist_ok=True)
        wanted = context_name(self.home / name, is_default=name == "default")
        config = self.config(name, *servers, gateway=gateway)
        return write_cluster_context(config, wanted, is_dead, make_current=make_current, environ=self.environ)

    def down(self, name: str = "default") -> str:
        (self.home / name).rmdir()
        return remove_cluster_context(self.home / name, environ=self.environ)

    @property
    def current(self) -> str:
        return current_context(environ=self.environ)

    def document(self) -> dict[str, Any]:
        result: dict[str, Any] = yaml.safe_load(self.path.read_text())
        return result

    def kubectl(self, context: str | None = None) -> KubectlContext:
        return find_kubectl_context(context, environ=self.environ)


def is_dead(data_dir: Path) -> bool:
    return not data_dir.exists()


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


@pytest.fixture
def owner(user: User) -> User:
    """A user with two clusters of other tools."""
    user.path.parent.mkdir()
    user.path.write_text(FOREIGN)
    return user


def test_first_cluster_creates_the_kubeconfig_and_down_removes_it(user: User) -> None:
    assert user.up() == WrittenContext(user.path, "pinnace", "", already=False)
    cluster = user.document()["clusters"][0]["cluster"]
    assert cluster["server"] == f"https://{GATEWAY}" and cluster["certificate-authority-data"] == "Q0E="
    assert user.document()["users"][0]["user"] == {
        "client-certificate": str(user.tls.cert),
        "client-key": str(user.tls.key),
    }
    result = load_config(environ=user.environ)
    assert (result.endpoints, result.data_dir, result.gateway) == (("127.0.0.1:1",), user.home / "default", GATEWAY)
    assert result.tls is not None and result.tls.ca.read_bytes() == b"CA"
    assert user.kubectl() == KubectlContext(None, "pinnace", f"https://{GATEWAY}")
    assert user.down() == "" and not user.path.exists()


def test_foreign_entries_keep_their_bytes(owner: User) -> None:
    assert owner.up().previous == "work"
    lines = iter(owner.path.read_text().splitlines())
    assert all(line in lines for line in FOREIGN.splitlines() if "current-context" not in line)
    assert owner.up() == WrittenContext(owner.path, "pinnace", "", already=True)
    assert owner.down() == "work" and owner.path.read_text() == FOREIGN


def test_context_that_was_chosen_meanwhile_stays_current(owner: User) -> None:
    owner.up()
    owner.path.write_text(owner.path.read_text().replace('current-context: "pinnace"', 'current-context: "kind-kind"'))
    owner.up(make_current=False)
    assert owner.current == "kind-kind"
    assert owner.down() == "" and owner.path.read_text() == FOREIGN.replace('"work" #', '"kind-kind" #')


def test_missing_current_context_is_missing_again(owner: User) -> None:
    text = FOREIGN.replace('current-context: "work" # where I was\n', "")
    owner.path.write_text(text)
    owner.up()
    assert owner.current == "pinnace"
    owner.down()
    assert owner.path.read_text() == text


def test_previous_context_that_is_gone_is_not_restored(owner: User) -> None:
    owner.up()
    owner.path.write_text(owner.path.read_text().replace("name: work", "name: moved"))
    assert owner.down() == "" and owner.document()["current-context"] == ""


@pytest.mark.parametrize("order", [("default", "big"), ("big", "default")])
def test_clusters_are_removed_in_any_order(owner: User, order: tuple[str, str]) -> None:
    assert owner.up().context == "pinnace"
    assert owner.up("big", gateway=OTHER_GATEWAY) == WrittenContext(owner.path, "pinnace-big", "pinnace", already=False)
    assert load_config(context="pinnace", environ=owner.environ).gateway == GATEWAY
    owner.down(order[0])
    assert owner.current == ("pinnace-big" if order[0] == "default" else "pinnace")
    owner.down(order[1])
    assert owner.path.read_text() == FOREIGN


def test_restarted_cluster_has_its_new_addresses(owner: User) -> None:
    owner.up()
    owner.up("default", "127.0.0.1:8", "127.0.0.1:9", gateway=OTHER_GATEWAY, make_current=False)
    result = load_config(environ=owner.environ)
    assert (result.endpoints, result.gateway) == (("127.0.0.1:8", "127.0.0.1:9"), OTHER_GATEWAY)
    owner.down()
    assert owner.path.read_text() == FOREIGN


def test_renamed_and_additional_contexts_belong_to_the_cluster(owner: User) -> None:
    """As by `kubectl config rename-context pinnace home`, and `set-context team`."""
    owner.up()
    text = owner.path.read_text().replace("- name: pinnace\n  context:", "- name: home\n  context:")
    text = text.replace('"pinnace" # where', '"home" # where')
    more = "- name: team\n  context: {cluster: pinnace, user: pinnace, namespace: team}\n"
    owner.path.write_text(text.replace("current-context:", f"{more}current-context:"))
    assert owner.up("default", "127.0.0.1:8") == WrittenContext(owner.path, "home", "", already=True)
    assert load_config(context="team", environ=owner.environ).namespace == "team"
    assert owner.down() == "work" and owner.path.read_text() == FOREIGN


@pytest.mark.parametrize("kind", ["cluster", "user", "context"])
def test_name_of_a_foreign_entry_is_not_taken(owner: User, kind: str) -> None:
    text = FOREIGN.replace(f"{kind}s:\n", f"{kind}s:\n{'  ' if kind == 'cluster' else ''}- {{name: pinnace, {kind}: {{}}}}\n")
    owner.path.write_text(text)
    written = owner.up()
    assert written.context.startswith("pinnace-") and len(written.context) == len("pinnace-") + 6
    assert owner.kubectl().name == written.context
    owner.down()
    assert owner.path.read_text() == text


def test_context_that_the_user_gave_to_another_cluster_is_not_taken_back(owner: User) -> None:
    owner.up()
    text = owner.path.read_text().replace("    cluster: pinnace\n    user: pinnace\n", "    cluster: work\n    user: work\n")
    owner.path.write_text(text)
    written = owner.up()
    assert written.context.startswith("pinnace-") and owner.kubectl().name == written.context
    assert {"name": "pinnace", "context": {"cluster": "work", "user": "work"}} in owner.document()["contexts"]


def test_entries_of_a_dead_cluster_are_replaced_and_those_of_a_stopped_one_kept(user: User, tmp_path: Path) -> None:
    user.up()
    (user.home / "default").rmdir()  # by `rm -r`
    assert stale_contexts(is_dead, environ=user.environ) == {"pinnace": user.home / "default"}
    other = user.config("elsewhere")
    assert write_cluster_context(other, "pinnace", is_dead, environ=user.environ).context == "pinnace"
    assert load_config(environ=user.environ).data_dir == user.home / "elsewhere"
    (user.home / "elsewhere").mkdir()
    assert write_cluster_context(user.config("third"), "pinnace", is_dead, environ=user.environ).context != "pinnace"


def test_entries_go_to_the_first_existing_file_of_several(tmp_path: Path) -> None:
    user = User(tmp_path, "one", "two", "three")
    user.paths[1].write_text(FOREIGN)
    user.paths[2].write_text("current-context: kind-kind\n")
    assert user.up().path == user.paths[1]
    assert not user.paths[0].exists() and user.paths[2].read_text() == "current-context: kind-kind\n"
    user.paths[0].write_text("kind: Config\n")
    assert user.current == "pinnace"
    user.up("default", "127.0.0.1:8")
    assert "127.0.0.1:8" in user.paths[1].read_text(), "an entry is changed where it is"
    assert user.paths[0].read_text() == "kind: Config\ncurrent-context: pinnace\n", "as by kubectl, in the first existing file"
    user.down()
    assert "pinnace" not in "".join(path.read_text() for path in user.paths)
    assert user.current == "work"


def test_named_file_is_used_instead(owner: User, tmp_path: Path) -> None:
    file = tmp_path / "mine"
    config = owner.config("default")
    assert write_cluster_context(config, "pinnace", is_dead, file=file, environ=owner.environ).path == file
    assert owner.path.read_text() == FOREIGN
    assert has_cluster_context(owner.home / "default", file=file) and not has_cluster_context(
        owner.home / "default", environ=owner.environ
    )
    assert find_kubectl_context(None, file=file, environ=owner.environ) == KubectlContext(file, "pinnace", f"https://{GATEWAY}")
    remove_cluster_context(owner.home / "default", file=file, environ=owner.environ)
    assert not file.exists()


def test_kubectl_never_gets_a_foreign_context(owner: User) -> None:
    with pytest.raises(ConfigError, match='context "work" is not the one of a pinnace cluster') as caught:
        owner.kubectl()
    assert "pinnace up" in caught.value.hint
    owner.up(make_current=True)
    owner.path.write_text(owner.path.read_text().replace('current-context: "pinnace"', 'current-context: "work"'))
    for context in (None, "work"):
        with pytest.raises(ConfigError, match="is not the one of a pinnace cluster") as caught:
            owner.kubectl(context)
        assert caught.value.hint == "choose a context with --context: pinnace"
        with pytest.raises(ConfigError, match="is not the one of a pinnace cluster"):
            load_config(context=context, environ=owner.environ)
    assert owner.kubectl("pinnace") == KubectlContext(None, "pinnace", f"https://{GATEWAY}")
    with pytest.raises(ConfigError, match=r'no context "gone" \(known: pinnace\)'):
        owner.kubectl("gone")


def test_kubectl_needs_a_kubeconfig_and_a_gateway(user: User) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        user.kubectl()
    user.up(gateway="")
    with pytest.raises(ConfigError, match="has no gateway"):
        user.kubectl()
    assert load_config(environ=user.environ).endpoints == ("127.0.0.1:1",)


def test_portable_kubeconfig_has_the_certificates_as_data(user: User, tmp_path: Path) -> None:
    assert user.tls.cert is not None and user.tls.key is not None
    user.tls.cert.write_text("CERT")
    user.tls.key.write_text("KEY")
    file = write_context("pinnace", ClientConfig(("a:1",), tls=user.tls, gateway="g:2"), file=tmp_path / "out", embed=True)
    result = load_config(file=file)
    assert result.tls is not None and result.tls.cert is not None and result.tls.key is not None
    assert [path.read_text() for path in (result.tls.ca, result.tls.cert, result.tls.key)] == ["CA", "CERT", "KEY"]
    assert (result.endpoints, result.gateway) == (("a:1",), "g:2")
