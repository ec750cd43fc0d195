"""How a machine gets its first certificate: bootstrap tokens, the pin of an authority, and signing requests. Pure.

    token     abcdef.0123456789abcdef, the form of Kubernetes; the part before the dot is the public ID
    pin       sha256:HEX, the digest of the authority's public key (SubjectPublicKeyInfo in DER), as in kubeadm
    request   PKCS #10 for system:node:NAME in system:nodes, made where the private key is and stays

Source: https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/ and
https://kubernetes.io/docs/reference/setup-tools/kubeadm/kubeadm-join/
"""

import hashlib
import re
import secrets
import string
from collections.abc import Collection
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from pinnace.api.names import NodeNames
from pinnace.pki.authority import Subject, generate_key

_TOKEN = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")
_PIN = re.compile(r"sha256:[0-9a-f]{64}")
_ALPHABET = string.ascii_lowercase + string.digits
NODE_USER, NODE_GROUP = "system:node:", "system:nodes"
MAX_NAME = 51
"""The maximum length of a fleet's name: the user name of a certificate has at most 64 characters."""


class BootstrapToken(NamedTuple):
    """A bootstrap token. `id` is public, `secret` is not."""

    id: str
    secret: str

    @classmethod
    def parse(cls, text: str) -> "BootstrapToken":
        """Raises ValueError, whose text does not contain the token."""
        match = _TOKEN.fullmatch(text)
        if match is None:
            raise ValueError("the bootstrap token is not of the form [a-z0-9]{6}.[a-z0-9]{16}")
        return cls(match[1], match[2])

    @classmethod
    def generate(cls) -> "BootstrapToken":
        return cls(*("".join(secrets.choice(_ALPHABET) for _ in range(length)) for length in (6, 16)))

    def __str__(self) -> str:
        return f"{self.id}.{self.secret}"


def certificate_pin(certificate: bytes) -> str:
    """Return the pin of a certificate in PEM. Raises ValueError."""
    key = x509.load_pem_x509_certificate(certificate).public_key()
    return f"sha256:{hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()}"


def check_pin(text: str) -> str:
    """Return a pin in lower case. Raises ValueError."""
    if not _PIN.fullmatch(lowered := text.lower()):
        raise ValueError(f'"{text:.80}" is not of the form sha256:HEX with 64 hexadecimal digits')
    return lowered


def is_pinned(certificate: bytes, pins: Collection[str]) -> bool:
    """Return whether one of the pins is that of the certificate. Raises ValueError."""
    return certificate_pin(certificate) in pins


def node_subject(name: str) -> Subject:
    """Return the identity of a fleet that can have the nodes `name`-*. Raises ValueError for an invalid name."""
    nodes = f"{name}-*"
    NodeNames.parse((name, nodes))
    if len(name) > MAX_NAME:
        raise ValueError(f'invalid name "{name}": must be no more than {MAX_NAME} characters')
    return Subject(f"{NODE_USER}{name}", (NODE_GROUP,), (nodes,))


def create_request(name: str) -> tuple[bytes, bytes]:
    """Return a new private key and a signing request for the fleet `name`, both in PEM. Raises ValueError."""
    key = generate_key()
    private = load_pem_private_key(key, password=None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    builder = x509.CertificateSigningRequestBuilder().subject_name(node_subject(name).name())
    return key, builder.sign(private, hashes.SHA256()).public_bytes(Encoding.PEM)


def check_certificate(certificate: bytes, key: bytes, ca: bytes) -> None:
    """Raise ValueError unless the authority has issued the certificate for the private key. All are in PEM."""
    issued, authority = x509.load_pem_x509_certificate(certificate), x509.load_pem_x509_certificate(ca)
    if issued.public_key() != load_pem_private_key(key, password=None).public_key():
        raise ValueError("the certificate is that of another key")
    try:
        issued.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        raise ValueError("the authority has not issued the certificate") from None


class SigningRequest(NamedTuple):
    """A valid request for the certificate of a fleet."""

    name: str
    public_key: ec.EllipticCurvePublicKey


def parse_request(pem: bytes) -> SigningRequest:
    """Check a request as Kubernetes' signer kube-apiserver-client-kubelet does: user and group of a node, and no other names.
    Raises ValueError.
    """
    try:
        request = x509.load_pem_x509_csr(pem)
        valid, key = request.is_signature_valid, request.public_key()
    except (ValueError, TypeError) as error:
        raise ValueError(f"not a certificate signing request in PEM: {error}") from None
    if not valid:
        raise ValueError("the signature of the request is invalid")
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != "secp256r1":
        raise ValueError("the key of the request is not a P-256 key")
    users = request.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    user = str(users[0].value) if len(users) == 1 else ""
    if not user.startswith(NODE_USER):
        raise ValueError(f"the user of the request does not begin with {NODE_USER}")
    name = user.removeprefix(NODE_USER)
    if request.subject != node_subject(name).name() or list(request.extensions):
        raise ValueError(f"the request must be for {NODE_USER}NAME in the group {NODE_GROUP}, without extensions")
    return SigningRequest(name, key)
