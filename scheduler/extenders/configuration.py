"""What a configuration says about one extender."""

from collections.abc import Mapping
from dataclasses import dataclass, field

FILTER, PRIORITIZE, PREEMPT, BIND = "filter", "prioritize", "preempt", "bind"
HTTP_TIMEOUT = 5.0
"""Seconds; Kubernetes' default."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Names of PEM files; empty: none."""

    insecure: bool = False
    """The extender's certificate is not verified."""
    ca_file: str = ""
    """Whom to trust instead of the system's certificate authorities."""
    cert_file: str = ""
    key_file: str = ""


@dataclass(frozen=True, slots=True)
class ExtenderConfiguration:
    url_prefix: str
    """http://, https:// or grpc://host:port. It is also the extender's name."""
    verbs: Mapping[str, str] = field(default_factory=dict)
    """The last part of the URL, by FILTER, PRIORITIZE, ...; what is not there is not asked."""
    weight: int = 0
    """Of its scores."""
    enable_https: bool = False
    tls: Tls | None = None
    timeout: float = HTTP_TIMEOUT
    """Seconds, of one call."""
    node_cache_capable: bool = False
    """It knows the nodes: they are sent by name."""
    managed_resources: Mapping[str, bool] = field(default_factory=dict)
    """By name, whether the scheduler ignores it. It hears of pods that ask for one of these; of all, when there are none."""
    ignorable: bool = False
    """Its failures fail nothing."""
