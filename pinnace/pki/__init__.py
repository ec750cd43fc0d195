"""Certificates: authorities, what they sign, and the folder in which a cluster keeps them. No component is known here."""

from pinnace.pki.authority import Authority, Pair, Subject

__all__ = ["Authority", "Pair", "Subject"]
