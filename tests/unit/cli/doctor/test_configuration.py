"""The configuration, who can read keys, and how long certificates last."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pinnace.cli.doctor.machine import FindingLevel, check_certificates, check_configuration, check_contexts, check_private_keys
from pinnace.cli.settings import Settings
from pinnace.cli.verbs.doctor import hint_at_renewal
from pinnace.client.config import ClientConfig
from pinnace.client.contexts import write_cluster_context, write_context
from pinnace.cluster.spec import ClusterSpec, initial_state
from pinnace.pki import Authority, Subject

NOW = datetime.now(UTC)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.delenv("PINNACE_SERVER", raising=False)
    return tmp_path / "config"


def test_configuration_that_is_not_there_is_no_problem(file: Path) -> None:
    config, (result,) = check_configuration(Settings())
    assert config is None and result.level is FindingLevel.WARNING and "pinnace up" in result.hint
    assert check_configuration(Settings(server="a:1"))[0] == ClientConfig(("a:1",))


def test_context_that_leads_somewhere(file: Path) -> None:
    write_context("far", ClientConfig(("far:1",)), file=file)
    config, (result,) = check_configuration(Settings())
    assert config == ClientConfig(("far:1",)) and result.message == f'{file}, context "far": far:1'
    config, (result,) = check_configuration(Settings(context="gone"))
    assert config is None and (result.level, "(known: far)" in result.message) == (FindingLevel.PROBLEM, True)
    file.write_text("kind: Pod")
    assert check_configuration(Settings())[1][0].level is FindingLevel.PROBLEM


def test_kubeconfig_that_others_can_write_is_a_warning(file: Path) -> None:
    write_context("far", ClientConfig(("far:1",)), file=file)
    file.chmod(0o622)
    _, (_, result) = check_configuration(Settings())
    assert (result.level, result.hint) == (FindingLevel.WARNING, f"chmod go-w {file}")


def test_contexts_that_are_missing_stale_dead_or_not_current(file: Path, tmp_path: Path) -> None:
    def found(config: ClientConfig | None) -> list[tuple[FindingLevel, str, str]]:
        findings = check_contexts(
            Settings(), config, lambda folder: folder.name == "dead", lambda folder: f" --data-dir {folder.name}"
        )
        return [(finding.level, finding.message, finding.hint) for finding in findings]

    def written(name: str) -> ClientConfig:
        config = ClientConfig(("127.0.0.1:1",), data_dir=tmp_path / name, tls=None)
        write_cluster_context(config, f"pinnace-{name}", lambda folder: False)
        return config

    assert found(None) == []
    mine = ClientConfig(("127.0.0.1:1",), data_dir=tmp_path / "mine")
    start = "`pinnace start --data-dir mine` writes it"
    assert found(mine) == [(FindingLevel.WARNING, f"{file} has no context of the cluster in {tmp_path / 'mine'}", start)]
    written("mine")
    assert found(mine) == [(FindingLevel.OK, f"pinnace-mine in {file}", "")]
    moved = ClientConfig(("127.0.0.1:1",), data_dir=tmp_path / "mine", gateway="127.0.0.1:6443")
    assert found(moved) == [
        (FindingLevel.PROBLEM, 'context "pinnace-mine" names no gateway; the gateway is 127.0.0.1:6443', start)
    ]
    written("dead")
    assert found(mine) == [
        (
            FindingLevel.WARNING,
            "kubectl uses the context 'pinnace-dead', not pinnace-mine",
            "`kubectl config use-context pinnace-mine`, or --context pinnace-mine",
        ),
        (
            FindingLevel.WARNING,
            f'context "pinnace-dead": there is no cluster in {tmp_path / "dead"} any more',
            "`pinnace down --data-dir dead` removes it",
        ),
    ]


def test_key_that_is_none(tmp_path: Path) -> None:
    key = tmp_path / "ca.key"
    key.write_text("x")
    key.chmod(0o600)
    (result,) = check_private_keys([key])
    assert (result.level, result.message) == (FindingLevel.PROBLEM, f"{key} is not a PEM private key")


def test_keys_that_others_can_read(tmp_path: Path) -> None:
    mine, open_to_all, gone = (tmp_path / name for name in ("mine", "all", "gone"))
    for path, mode in ((mine, 0o600), (open_to_all, 0o644)):
        path.touch()
        path.chmod(mode)
    assert [key.level for key in check_private_keys([mine])] == [FindingLevel.OK]
    warned, missing = check_private_keys([mine, open_to_all, gone])
    assert (warned.level, warned.hint) == (FindingLevel.WARNING, f"chmod 600 {open_to_all}")
    assert (missing.level, missing.message) == (FindingLevel.PROBLEM, f"{gone}: No such file or directory")
    assert check_private_keys([]) == []


@pytest.mark.parametrize(
    ("made", "days", "level"),
    [(0, 365, FindingLevel.OK), (0, 20, FindingLevel.WARNING), (-30, 20, FindingLevel.PROBLEM), (1, 365, FindingLevel.PROBLEM)],
)
def test_certificates_that_end_or_have_not_begun(tmp_path: Path, made: int, days: int, level: FindingLevel) -> None:
    authority = Authority.create("ca", NOW)
    pair = authority.issue(Subject("me"), NOW + timedelta(days=made), lifetime=timedelta(days=days))
    (tmp_path / "me.crt").write_bytes(pair.certificate)
    assert [certificate.level for certificate in check_certificates([tmp_path / "me.crt"], lambda _: "make new ones", NOW)] == [
        level
    ]


def test_malformed_certificate_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "odd.crt").write_text("-")
    odd, gone = check_certificates([tmp_path / "odd.crt", tmp_path / "gone.crt"], lambda _: "make new ones", NOW)
    assert (odd.level, odd.message, odd.hint) == (
        FindingLevel.PROBLEM,
        f"{tmp_path / 'odd.crt'}: not a PEM certificate",
        "delete it; make new ones",
    )
    assert gone.level is FindingLevel.PROBLEM


def test_hint_for_the_renewal_of_a_certificate(tmp_path: Path) -> None:
    state = initial_state(ClusterSpec(data_dir=tmp_path), [], [], 0.0)
    pki = tmp_path / "pki"
    assert f"`pinnace restart --data-dir {tmp_path}`" in hint_at_renewal(state, pki / "etcd" / "peer.crt")
    assert "`pinnace up --fresh`" in hint_at_renewal(state, pki / "etcd" / "ca.crt")
    assert f"pinnace pki {pki} --user ada" in hint_at_renewal(state, pki / "users" / "ada.crt")
    assert "`pinnace pki`" in hint_at_renewal(state, tmp_path / "other.crt") and "`pinnace pki`" in hint_at_renewal(
        None, pki / "ca.crt"
    )
