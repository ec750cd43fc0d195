"""Command line options by which kubelets know an API server, and it them."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from pinnace.runtime.tls import TlsFiles

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def kubelet_credentials(command: Callable[..., None]) -> Callable[..., None]:
    """Adds them to a command, which gets `kubelet_tls`. Without any of them that is None."""

    @click.option(
        "--kubelet-certificate-authority",
        type=_FILE,
        help="Certificate authorities; kubelets must show a certificate from one of them.",
    )
    @click.option("--kubelet-client-certificate", type=_FILE, help="The certificate that kubelets are shown, PEM.")
    @click.option("--kubelet-client-key", type=_FILE, help="Its key.")
    @wraps(command)
    def with_credentials(
        *args: Any,
        kubelet_certificate_authority: Path | None,
        kubelet_client_certificate: Path | None,
        kubelet_client_key: Path | None,
        **options: Any,
    ) -> None:
        ca, cert, key = kubelet_certificate_authority, kubelet_client_certificate, kubelet_client_key
        tls = TlsFiles(ca, cert, key) if ca and cert and key else None
        if tls is None and (ca or cert or key):
            raise click.UsageError(
                "name all of --kubelet-certificate-authority, --kubelet-client-certificate and --kubelet-client-key, or none"
            )
        command(*args, kubelet_tls=tls, **options)

    return with_credentials
