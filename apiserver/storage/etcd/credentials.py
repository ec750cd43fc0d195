"""The options of a program that talks to etcd, as kube-apiserver has them: by which certificates the two know each other."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from pinnace.runtime.tls import TlsFiles

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def credentials(command: Callable[..., None]) -> Callable[..., None]:
    """Adds them to a command, which gets `etcd_tls`. Without any of them that is None: etcd is spoken to in the clear."""

    @click.option("--etcd-cafile", type=_FILE, help="Certificate authorities; etcd must show a certificate from one of them.")
    @click.option("--etcd-certfile", type=_FILE, help="The certificate that etcd is shown, PEM.")
    @click.option("--etcd-keyfile", type=_FILE, help="Its key.")
    @wraps(command)
    def with_credentials(
        *args: Any, etcd_cafile: Path | None, etcd_certfile: Path | None, etcd_keyfile: Path | None, **options: Any
    ) -> None:
        if etcd_cafile and etcd_certfile and etcd_keyfile:
            tls = TlsFiles(etcd_cafile, etcd_certfile, etcd_keyfile)
        elif etcd_cafile or etcd_certfile or etcd_keyfile:
            raise click.UsageError("name all of --etcd-cafile, --etcd-certfile and --etcd-keyfile, or none of them")
        else:
            tls = None
        command(*args, etcd_tls=tls, **options)

    return with_credentials
