from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pinnace.pki import Authority, CertificatePair, Subject

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create("test-ca", NOW)


def issued(authority: Authority, *hosts: str) -> x509.Certificate:
    subject = Subject("system:node:a", ("system:nodes", "others"))
    return x509.load_pem_x509_certificate(authority.issue(subject, NOW, hosts=hosts).certificate)


def test_subject_has_user_and_groups(authority: Authority) -> None:
    assert Subject.of(issued(authority)) == Subject("system:node:a", ("system:nodes", "others"))


def test_certificate_is_signed_by_its_authority_only(authority: Authority) -> None:
    certificate = issued(authority)
    assert authority.signed(certificate)
    assert not Authority.create("test-ca", NOW).signed(certificate) and not Authority.create("other", NOW).signed(certificate)


def test_server_is_found_where_it_says_and_a_client_is_no_server(authority: Authority) -> None:
    server = issued(authority, "apiserver", "127.0.0.1", "::1")
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["apiserver"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    for certificate, serves in ((server, True), (issued(authority), False)):
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert ExtendedKeyUsageOID.CLIENT_AUTH in usages and (ExtendedKeyUsageOID.SERVER_AUTH in usages) is serves


def test_issued_certificate_cannot_sign(authority: Authority) -> None:
    certificate = issued(authority)
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not certificate.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign


def test_certificate_tolerates_clock_skew_and_expires(authority: Authority) -> None:
    certificate = issued(authority)
    assert certificate.not_valid_before_utc < NOW - timedelta(minutes=1)
    assert certificate.not_valid_after_utc == NOW + timedelta(days=365)


def test_key_of_another_certificate_is_refused(authority: Authority) -> None:
    other = Authority.create("other", NOW)
    with pytest.raises(ValueError, match="the key is not that of the authority's certificate"):
        Authority(CertificatePair(authority.pair.certificate, other.pair.key))


def test_certificate_without_a_common_name() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    nobody = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:masters")])
    builder = x509.CertificateBuilder().subject_name(nobody).issuer_name(nobody).public_key(key.public_key()).serial_number(1)
    certificate = builder.not_valid_before(NOW).not_valid_after(NOW + timedelta(days=1)).sign(key, hashes.SHA256())
    with pytest.raises(ValueError, match="no common name"):
        Subject.of(certificate)
