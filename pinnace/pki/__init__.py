"""Certificates: authorities, signed certificates, and the folder of a cluster. Independent of the components."""

from pinnace.pki.authority import Authority, CertificatePair, Subject

__all__ = ["Authority", "CertificatePair", "Subject"]
