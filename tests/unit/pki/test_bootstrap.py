"""Bootstrap tokens, pins, and the requests that a signer accepts."""

import hashlib
import subprocess
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from pinnace.pki import Authority, Subject
from pinnace.pki.bootstrap import (
    BootstrapToken,
    certificate_pin,
    check_certificate,
    check_pin,
    create_request,
    is_pinned,
    node_subject,
    parse_request,
)

NOW = datetime(2026, 1, 2, tzinfo=UTC)
AUTHORITY = Authority.create("ca", NOW)


def request_of(subject: Subject, *, host: str = "", key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | None = None) -> bytes:
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject.name())
    if host:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
    signed = builder.sign(key or ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return signed.public_bytes(Encoding.PEM)


def test_generated_token_has_the_form_of_kubernetes_and_is_parsed_again() -> None:
    token = BootstrapToken.generate()
    assert BootstrapToken.parse(str(token)) == token
    assert len(token.id) == 6 and len(token.secret) == 16


@pytest.mark.parametrize(
    "text", ["", "abcdef", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcde", "abcdef.0123456789abcdef\n"]
)
def test_malformed_token_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(ValueError, match="not of the form") as error:
        BootstrapToken.parse(text)
    assert not text.strip() or text.strip() not in str(error.value)


@pytest.mark.processes
def test_pin_is_that_of_kubeadm() -> None:
    """The documentation of kubeadm computes it by openssl."""
    certificate = AUTHORITY.pair.certificate
    public = subprocess.run(
        ["openssl", "x509", "-pubkey"], input=certificate, capture_output=True, check=True, timeout=10
    ).stdout
    der = subprocess.run(
        ["openssl", "pkey", "-pubin", "-outform", "der"], input=public, capture_output=True, check=True, timeout=10
    ).stdout
    assert certificate_pin(certificate) == f"sha256:{hashlib.sha256(der).hexdigest()}"


def test_pin_is_compared_with_all_given_ones() -> None:
    other = certificate_pin(Authority.create("ca", NOW).pair.certificate)
    certificate = AUTHORITY.pair.certificate
    assert is_pinned(certificate, [other, check_pin(certificate_pin(certificate).replace("sha256:", "SHA256:").lower())])
    assert not is_pinned(certificate, [other])
    with pytest.raises(ValueError, match="sha256:HEX"):
        check_pin("sha256:abc")


def test_request_gives_a_certificate_for_its_key() -> None:
    key, pem = create_request("delta")
    request = parse_request(pem)
    certificate = AUTHORITY.certify(request.public_key, node_subject(request.name), NOW)
    check_certificate(certificate, key, AUTHORITY.pair.certificate)
    subject = Subject.of(x509.load_pem_x509_certificate(certificate))
    assert subject == Subject("system:node:delta", ("system:nodes",), ("delta-*",))


def test_certificate_of_another_key_or_authority_is_refused() -> None:
    key, pem = create_request("delta")
    certificate = AUTHORITY.certify(parse_request(pem).public_key, node_subject("delta"), NOW)
    with pytest.raises(ValueError, match="another key"):
        check_certificate(certificate, create_request("delta")[0], AUTHORITY.pair.certificate)
    with pytest.raises(ValueError, match="has not issued"):
        check_certificate(certificate, key, Authority.create("other", NOW).pair.certificate)


@pytest.mark.parametrize(
    "pem",
    [
        pytest.param(b"nothing", id="no-request"),
        pytest.param(request_of(Subject("kubernetes-admin", ("system:masters",))), id="administrator"),
        pytest.param(request_of(Subject("system:node:delta", ("system:masters",))), id="another-group"),
        pytest.param(request_of(Subject("system:node:delta", ("system:nodes", "system:masters"))), id="one-more-group"),
        pytest.param(request_of(Subject("system:node:delta")), id="no-group"),
        pytest.param(request_of(Subject("system:node:delta", ("system:nodes",)), host="apiserver"), id="with-host"),
        pytest.param(request_of(Subject("system:node:../ca", ("system:nodes",))), id="path"),
        pytest.param(request_of(Subject("system:node:*", ("system:nodes",))), id="pattern"),
        pytest.param(
            request_of(Subject("system:node:delta", ("system:nodes",)), key=rsa.generate_private_key(65537, 2048)), id="rsa"
        ),
    ],
)
def test_requests_for_anything_but_a_fleet_are_refused(pem: bytes) -> None:
    with pytest.raises(ValueError, match=r"request|node name|user"):
        parse_request(pem)


def test_request_with_a_changed_subject_is_refused() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    der = x509.load_pem_x509_csr(request_of(Subject("system:node:delta", ("system:nodes",)), key=key)).public_bytes(
        Encoding.DER
    )
    forged = x509.load_der_x509_csr(der.replace(b"delta", b"alpha")).public_bytes(Encoding.PEM)
    with pytest.raises(ValueError, match="signature"):
        parse_request(forged)
