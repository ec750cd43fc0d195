"""The certificates of a cluster, in the layout of kubeadm."""

from pathlib import Path

import pytest
import yaml
from cryptography import x509

from pinnace.cli.main import run_command_line
from pinnace.cli.outcomes import ExitCode
from pinnace.cli.settings import Settings
from pinnace.cli.verbs.pki import pki
from pinnace.client import config
from pinnace.cluster import certificates
from pinnace.cluster.spec import pki_folder
from pinnace.pki import Subject

OF_ETCD = {"etcd/server": "kube-etcd", "etcd/peer": "kube-etcd-peer", "apiserver-etcd-client": "kube-apiserver-etcd-client"}
OTHERS = {
    "apiserver": "kube-apiserver",
    "admin": "kubernetes-admin",
    "scheduler": "system:kube-scheduler",
    "controllers": "system:kube-controller-manager",
    "gateway": "system:gateway",
    "proxy": "system:kube-proxy",
    "kubelet": "system:node:kubelet",
    "apiserver-kubelet-client": "kube-apiserver-kubelet-client",
}


def provide(folder: Path) -> list[str]:
    return certificates.create_certificates(
        folder, ["apiserver:7443"], {"kubelet": ["kubelet-*"]}, ["apiserver"], ["etcd", "10.0.0.7"]
    )


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def hosts(certificate: x509.Certificate) -> list[str]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def test_every_client_has_a_certificate_and_etcd_a_separate_authority(tmp_path: Path) -> None:
    assert sorted(provide(tmp_path)) == sorted([*OF_ETCD, *OTHERS, "sa"])
    for authority, names in (("ca", OTHERS), ("etcd/ca", OF_ETCD)):
        issuer = load(tmp_path / f"{authority}.crt")
        for name, user in names.items():
            certificate = load(tmp_path / f"{name}.crt")
            certificate.verify_directly_issued_by(issuer)
            assert Subject.of(certificate).user == user
    assert load(tmp_path / "etcd/ca.crt").subject.rfc4514_string() == "CN=etcd-ca"
    for name in ("server", "peer"):
        assert hosts(load(tmp_path / f"etcd/{name}.crt")) == ["etcd", "10.0.0.7"]


def test_missing_etcd_certificates_are_added(tmp_path: Path) -> None:
    provide(tmp_path)
    kept = (tmp_path / "apiserver.crt").read_bytes()
    for path in (*tmp_path.glob("etcd/*"), *tmp_path.glob("apiserver-etcd-client.*")):
        path.unlink()
    assert sorted(provide(tmp_path)) == sorted(OF_ETCD)
    assert (tmp_path / "apiserver.crt").read_bytes() == kept


def test_pki_command_issues_etcd_certificates_for_given_hosts_and_loopback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(tmp_path), "--server", "apiserver:7443", "--etcd-host", "etcd", "--etcd-host", "etcd-2"]
    pki.main(arguments, standalone_mode=False, obj=Settings())
    assert f"{tmp_path}/etcd/server.crt created\n" in capsys.readouterr().out
    for name in ("server", "peer"):
        assert hosts(load(tmp_path / f"etcd/{name}.crt")) == [*certificates.LOOPBACK, "etcd", "etcd-2"]


@pytest.mark.parametrize("below", ["", "pki"])
def test_user_certificate_is_issued_by_the_existing_authority(tmp_path: Path, below: str) -> None:
    """The argument is the folder of the certificates or the folder of a local cluster."""
    folder = tmp_path / below
    provide(folder)
    before = (folder / "admin.crt").read_bytes()
    words = ["pki", str(tmp_path), "--user", "ada", "--group", "keepers"]
    assert run_command_line(words) == ExitCode.OK
    certificate = load(folder / "users/ada.crt")
    certificate.verify_directly_issued_by(load(folder / "ca.crt"))
    assert Subject.of(certificate) == Subject("ada", ("keepers",))
    result = config.load_config(file=folder / "users/ada.conf")
    assert result.endpoints == ("apiserver:7443",)
    assert result.tls is not None and result.tls.create_ssl_context()
    assert run_command_line(words) == ExitCode.OK and load(folder / "users/ada.crt") == certificate, (
        "a valid certificate is kept"
    )
    assert (folder / "admin.crt").read_bytes() == before


@pytest.mark.parametrize("local", [True, False])
def test_client_configurations_name_the_folder_of_a_local_cluster(tmp_path: Path, local: bool) -> None:
    """The folder of a cluster may be moved."""
    certificates.create_certificates(pki_folder(tmp_path / "made"), ["127.0.0.1:1"], {}, local=local)
    certificates.create_user_certificate(pki_folder(tmp_path / "made"), "ada", [])
    moved = (tmp_path / "made").rename(tmp_path / "moved")
    for name in ("admin", "scheduler", "users/ada"):
        result = config.load_config(file=pki_folder(moved) / f"{name}.conf")
        assert result.data_dir == (moved if local else None), name
        assert result.tls is not None and result.tls.create_ssl_context()


def test_kubeconfig_of_the_administrator_is_for_kubectl_and_pinnace(tmp_path: Path) -> None:
    words = ["pki", str(tmp_path / "made"), "--server", "a:7443,b:7443", "--gateway", "gateway:6443"]
    assert run_command_line(words) == ExitCode.OK
    moved = (tmp_path / "made").rename(tmp_path / "moved")
    result = yaml.safe_load((moved / "admin.conf").read_text())
    cluster, user = result["clusters"][0]["cluster"], result["users"][0]["user"]
    assert cluster["server"] == "https://gateway:6443"
    for name in (cluster["certificate-authority"], user["client-certificate"], user["client-key"]):
        assert not Path(name).is_absolute() and (moved / name).is_file()
    assert config.load_config(file=moved / "admin.conf").endpoints == ("a:7443", "b:7443")
    assert config.load_config(file=moved / "scheduler.conf").gateway == ""
    assert run_command_line(["pki", str(moved), "--user", "ada"]) == ExitCode.OK
    assert config.load_config(file=moved / "users/ada.conf").gateway == "gateway:6443"


def test_exported_kubeconfig_needs_no_other_file(tmp_path: Path) -> None:
    provide(tmp_path / "pki")
    before = {path: path.read_bytes() for path in (tmp_path / "pki").rglob("*") if path.is_file()}
    words = ["pki", str(tmp_path / "pki"), "--export", str(tmp_path / "kube" / "config")]
    assert run_command_line([*words, "--server", "127.0.0.1:7443", "--gateway", "127.0.0.1:6443"]) == ExitCode.OK
    assert before == {path: path.read_bytes() for path in (tmp_path / "pki").rglob("*") if path.is_file()}
    (tmp_path / "pki").rename(tmp_path / "gone")
    result = config.load_config(file=tmp_path / "kube" / "config")
    assert (result.endpoints, result.gateway) == (("127.0.0.1:7443",), "127.0.0.1:6443")
    assert result.tls is not None and result.tls.create_ssl_context()
    assert config.find_kubectl_context(None, file=tmp_path / "kube" / "config").name == "pinnace"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--user", "../ada"], ExitCode.USAGE),
        (["--user", "ada", "--gateway", "127.0.0.1:6443"], ExitCode.USAGE),
        (["--server", "a:7443", "--gateway", "a:b"], ExitCode.USAGE),
        (["--user", "ada", "--fleet", "edge"], ExitCode.USAGE),
        (["--group", "keepers"], ExitCode.USAGE),
        (["--export", "config", "--user", "ada"], ExitCode.USAGE),
        (["--export", "config"], ExitCode.NOT_FOUND),
        ([], ExitCode.USAGE),
        (["--user", "ada"], ExitCode.NOT_FOUND),
    ],
)
def test_invalid_names_get_no_certificate(tmp_path: Path, words: list[str], code: ExitCode) -> None:
    assert run_command_line(["pki", str(tmp_path / "pki"), *words]) == code
    assert not list(tmp_path.iterdir())
