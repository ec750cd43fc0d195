"""A certificate authority: issues certificates that identify users and servers.

As in Kubernetes, the subject's common name is the user, and each organisation is a group. The names of a server are its subject
alternative names. All keys are P-256, for small certificates and fast handshakes.

API servers and kubelets use a pair of
certificates of their own when the API server calls a kubelet, for logs, exec and usage: a fleet's certificate is valid for one
server name, the same for all fleets, because the address that the nodes publish identifies the kubelet, and only their own
fleet writes it. It is not valid for an API server's name, so that no client takes a kubelet for an API server. The client
certificate of an API server has no rights in the API.

Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#x509-client-certificates
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SKEW = timedelta(minutes=5)
"""Certificates are valid from this time before their creation, because clocks differ."""
CA_LIFETIME = timedelta(days=3650)
LIFETIME = timedelta(days=365)
_NODES = "urn:pinnace:nodes:"
SERVER_NAME = "kubelet.pinnace"


@dataclass(frozen=True, slots=True)
class Subject:
    """An identity. `user` is not empty. `nodes`: the names of a fleet's nodes, as patterns (pinnace.api.names). In the
    certificate, each is an alternative name, the URI urn:pinnace:nodes:<pattern>.
    """

    user: str
    groups: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()

    def name(self) -> x509.Name:
        organisations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in self.groups]
        return x509.Name([*organisations, x509.NameAttribute(NameOID.COMMON_NAME, self.user)])

    @classmethod
    def of(cls, certificate: x509.Certificate) -> "Subject":
        """Raises ValueError if the certificate has no user."""
        users = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        if len(users) != 1:
            raise ValueError("the certificate's subject has no common name")
        groups = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        nodes = (uri.removeprefix(_NODES) for uri in _node_pattern_uris(certificate) if uri.startswith(_NODES))
        return cls(str(users[0].value), tuple(str(group.value) for group in groups), tuple(nodes))


@dataclass(frozen=True, slots=True)
class CertificatePair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """Signs certificates with the key of a trusted authority."""

    def __init__(self, pair: CertificatePair) -> None:
        """Raises ValueError if the certificate and key are not those of an authority."""
        self.pair = pair
        self._certificate = x509.load_pem_x509_certificate(pair.certificate)
        key = load_pem_private_key(pair.key, password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != self._certificate.public_key():
            raise ValueError("the key is not that of the authority's certificate")
        self._key = key

    @classmethod
    def create(cls, name: str, now: datetime, lifetime: timedelta = CA_LIFETIME) -> "Authority":
        key = ec.generate_private_key(ec.SECP256R1())
        subject = Subject(name).name()
        builder = _prepare_certificate(subject, subject, key.public_key(), now, lifetime)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
        return cls(CertificatePair(_sign_certificate(builder, key), _private_bytes(key)))

    def signed(self, certificate: x509.Certificate) -> bool:
        """Whether the certificate was issued by this authority."""
        try:
            certificate.verify_directly_issued_by(self._certificate)
        except (ValueError, TypeError, InvalidSignature):
            return False
        return True

    def issue(
        self,
        subject: Subject,
        now: datetime,
        *,
        hosts: Sequence[str] = (),
        lifetime: timedelta = LIFETIME,
    ) -> CertificatePair:
        """A client certificate; with `hosts` (names and addresses), also a server certificate."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self.certify(key.public_key(), subject, now, hosts=hosts, lifetime=lifetime)
        return CertificatePair(certificate, _private_bytes(key))

    def certify(
        self,
        key: ec.EllipticCurvePublicKey,
        subject: Subject,
        now: datetime,
        *,
        hosts: Sequence[str] = (),
        lifetime: timedelta = LIFETIME,
    ) -> bytes:
        """As `issue`, for a public key whose private key is elsewhere. Return the certificate in PEM."""
        builder = _prepare_certificate(subject.name(), self._certificate.subject, key, now, lifetime)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        names = [*map(_general_name, hosts), *(x509.UniformResourceIdentifier(_NODES + node) for node in subject.nodes)]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return _sign_certificate(builder.add_extension(issuer, critical=False), self._key)


def generate_key() -> bytes:
    """Return a new private key, P-256 in PEM."""
    return _private_bytes(ec.generate_private_key(ec.SECP256R1()))


def public_key_of(key: bytes) -> bytes:
    """Return the public key of a private one, both PEM. Raises ValueError."""
    public = load_pem_private_key(key, password=None).public_key()
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _prepare_certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    identifier = x509.SubjectKeyIdentifier.from_public_key(key)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + lifetime)
        .add_extension(identifier, critical=False)
    )


def _sign_certificate(builder: x509.CertificateBuilder, by: ec.EllipticCurvePrivateKey) -> bytes:
    return builder.sign(by, hashes.SHA256()).public_bytes(Encoding.PEM)


def _private_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _node_pattern_uris(certificate: x509.Certificate) -> list[str]:
    """The node patterns in the alternative names."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return names.get_values_for_type(x509.UniformResourceIdentifier)


CLIENT = Subject("kube-apiserver-kubelet-client")
