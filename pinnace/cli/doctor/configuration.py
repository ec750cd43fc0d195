"""The client's configuration: is it one, does its context lead anywhere, who can read its keys, how long certificates last."""

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from pinnace.cli.doctor.finding import Finding, ok, problem, warning
from pinnace.cli.settings import Settings
from pinnace.client.config import ClientConfig, ConfigError, config_path, found, load
from pinnace.client.contexts import CURRENT

CHECK = "configuration"


def configuration(settings: Settings) -> tuple[ClientConfig | None, Sequence[Finding]]:
    """Where the API servers are; None: nobody knows."""
    path = config_path()
    try:
        document = found(path)
        if document is None and not (settings.server or os.environ.get("PINNACE_SERVER")):
            return None, [warning(CHECK, f"{path} does not exist: no cluster is known", ConfigError("").hint)]
        config = load(settings.server, context=settings.context)
    except ConfigError as error:
        return None, [problem(CHECK, str(error), error.hint)]
    context = settings.context or (document or {}).get(CURRENT)
    where = f'{path}, context "{context}"' if context else "no context"
    return config, [ok(CHECK, f"{where}: {', '.join(config.endpoints)}")]


def keys(paths: Iterable[Path]) -> Sequence[Finding]:
    """Private keys, and files with tokens in them: nobody else is to read them."""
    findings, count = [], 0
    for path in paths:
        try:
            mode = path.stat().st_mode
            readable = os.access(path, os.R_OK)
        except OSError as error:
            findings.append(problem("keys", f"{path}: {error.strerror}", "make it anew (`pinnace pki`), or correct its path"))
            continue
        count += 1
        if not readable:
            findings.append(problem("keys", f"{path} cannot be read", f"become its owner, or chown {path}"))
        elif path.suffix == ".key" and b"PRIVATE KEY-----" not in path.read_bytes():
            findings.append(problem("keys", f"{path} is no private key in PEM", "put back what was there"))
        elif mode & 0o077:
            findings.append(warning("keys", f"others can read {path}", f"chmod 600 {path}"))
    return findings or ([ok("keys", f"{count} that only you can read")] if count else [])


def certificates(paths: Iterable[Path], renewal: Callable[[Path], str], now: datetime | None = None) -> Sequence[Finding]:
    """Whether they are valid now, and for how long. `renewal`: how this one is made anew."""
    from cryptography import x509

    from pinnace.pki.folder import RENEW_BEFORE

    now = now or datetime.now(UTC)
    findings, ends = [], []
    for path in paths:
        try:
            certificate = x509.load_pem_x509_certificate(path.read_bytes())
        except OSError as error:
            findings.append(problem("certificates", f"{path}: {error.strerror}", renewal(path)))
            continue
        except ValueError:
            findings.append(problem("certificates", f"{path}: it is no certificate in PEM", f"remove it; {renewal(path)}"))
            continue
        end, begin = certificate.not_valid_after_utc, certificate.not_valid_before_utc
        ends.append(end)
        if end <= now:
            findings.append(problem("certificates", f"{path} has ended on {end:%Y-%m-%d}", renewal(path)))
        elif begin > now:
            clock = "set this machine's clock, which is behind that of who made it"
            findings.append(problem("certificates", f"{path} is valid only from {begin:%Y-%m-%d %H:%M} UTC on", clock))
        elif end - RENEW_BEFORE <= now:
            findings.append(warning("certificates", f"{path} ends on {end:%Y-%m-%d}", renewal(path)))
    if findings or not ends:
        return findings
    return [ok("certificates", f"{len(ends)} are valid, until {min(ends):%Y-%m-%d} at least")]
