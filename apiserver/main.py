"""`pinnace-apiserver`: the command line of the API server."""

import asyncio
import logging
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
import uvloop

from pinnace.apiserver import stage_cpu
from pinnace.apiserver.admission.plugins import parse_plugin_names
from pinnace.apiserver.assembly import DEFAULTS, ServerSettings
from pinnace.apiserver.auth.audit import AuditLog
from pinnace.apiserver.auth.authentication import NoTokenAuthenticator, RequestAuthenticator, TokenFile
from pinnace.apiserver.auth.tokens import DEFAULT_ISSUER, TokenKeyFiles, TokenSettings
from pinnace.apiserver.election.service import DEFAULT_LEASE, MAX_LEASE
from pinnace.apiserver.registry.allocation import ServiceRanges, parse_networks, parse_node_ports
from pinnace.apiserver.registry.events import EventLimits
from pinnace.apiserver.registry.strategies.pods import DEFAULT_TOLERATION_SECONDS, DefaultTolerationSeconds
from pinnace.apiserver.server import ApiServer
from pinnace.apiserver.services import metrics
from pinnace.apiserver.services.kubelets import GrpcKubelets
from pinnace.apiserver.services.tokens import MIN_SECONDS
from pinnace.apiserver.startup import IdentityClaim, authority_reader
from pinnace.apiserver.storage.etcd import EtcdStorage
from pinnace.apiserver.storage.etcd.members import add_tls_options
from pinnace.apiserver.storage.interface import MeasuredStorage, PrefixedStorage, Storage, check_prefix
from pinnace.runtime import flags, process
from pinnace.runtime.clock import SYSTEM_CLOCK
from pinnace.runtime.cpu import ProcessorPinning, count_preemptions
from pinnace.runtime.http import StatusServer, format_address
from pinnace.runtime.supervise import run_unending
from pinnace.runtime.tls import TlsFiles

log = logging.getLogger(__name__)
T = TypeVar("T")

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def kubelet_credentials(command: Callable[..., None]) -> Callable[..., None]:
    """Add the --kubelet-* options to a command, and pass them as `kubelet_tls`: None if no option is set."""

    @click.option(
        "--kubelet-certificate-authority",
        type=_FILE,
        help="Path to a PEM file of certificate authorities that sign the serving certificates of kubelets.",
    )
    @click.option("--kubelet-client-certificate", type=_FILE, help="Path to the PEM client certificate for kubelets.")
    @click.option("--kubelet-client-key", type=_FILE, help="Path to the PEM private key of --kubelet-client-certificate.")
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
                "--kubelet-certificate-authority, --kubelet-client-certificate and --kubelet-client-key must be set together"
            )
        command(*args, kubelet_tls=tls, **options)

    return with_credentials


@click.command("pinnace-apiserver", cls=flags.ComponentCommand)
@click.option("--name", default=socket.gethostname, show_default="the host name", help="Name of this server in traces.")
@click.option("--listen", type=flags.parse_address_option, default="127.0.0.1:7443", help="Address of the gRPC API.")
@click.option(
    "--http", type=flags.parse_address_option, default="127.0.0.1:7480", help="Address of /metrics, /livez and /readyz."
)
@click.option("--etcd", default="127.0.0.1:2379", help="Comma-separated list of etcd client addresses.")
@click.option(
    "--etcd-prefix",
    "prefix",
    default="",
    show_default="none",
    help="Prefix of all keys in etcd, such as /staging. With different prefixes, several control planes can share one etcd.",
)
@click.option(
    "--cluster-id",
    default="",
    show_default="any cluster with the same client CA",
    help="ID of the cluster in etcd. The server does not start if etcd contains another cluster.",
)
@add_tls_options
@kubelet_credentials
@click.option(
    "--etcd-compaction-interval",
    "compaction_interval",
    default=DEFAULTS.compaction_interval,
    type=click.FloatRange(min=0),
    help="Seconds between compactions of etcd. The history of the last one to two intervals is kept. If 0, this server does "
    "not compact etcd.",
)
@click.option(
    "--election-lease-duration",
    "election_lease",
    type=click.IntRange(DEFAULT_LEASE, MAX_LEASE),
    default=DEFAULTS.election_lease,
    help="Seconds after which the lease of a candidate expires if it is not renewed. A frozen leader is replaced after half of "
    "this time. All API servers need the same value.",
)
@click.option(
    "--event-max-count",
    type=click.IntRange(min=1),
    default=DEFAULTS.events.count,
    help="Maximum number of stored events. Above it, the oldest events of the namespaces with the most events are deleted.",
)
@click.option(
    "--event-max-bytes",
    type=click.IntRange(min=1),
    default=DEFAULTS.events.size,
    help="Maximum total size of stored events in bytes. Above it, events are deleted as with --event-max-count.",
)
@click.option("--tls-cert-file", "cert", type=_FILE, help="Path to the PEM serving certificate.")
@click.option("--tls-private-key-file", "key", type=_FILE, help="Path to the PEM private key of --tls-cert-file.")
@click.option(
    "--client-ca-file", "ca", type=_FILE, help="Path to a PEM file of certificate authorities that sign client certificates."
)
@click.option(
    "--token-auth-file", "tokens", type=_FILE, help='Path to a CSV file of static tokens, with lines token,user,uid,"groups".'
)
@click.option(
    "--token-listen",
    type=flags.parse_address_option,
    help="Address for clients that send a bearer token instead of a certificate.",
)
@click.option(
    "--service-account-signing-key-file",
    "signing_key",
    type=_FILE,
    help="Path to the PEM private key (RSA or EC) that signs tokens of service accounts. Without it, pods have no credentials. "
    "All API servers need the same key.",
)
@click.option(
    "--service-account-key-file",
    "verifying_keys",
    type=_FILE,
    multiple=True,
    help="Path to a PEM file with keys that verify tokens of service accounts, besides the signing key. Can be repeated.",
)
@click.option(
    "--service-account-issuer", "issuer", default=DEFAULT_ISSUER, help="Issuer of tokens of service accounts: the claim iss."
)
@click.option("--service-account-jwks-uri", "jwks_uri", default="", help="Address of the key set in the discovery document.")
@click.option(
    "--api-audiences", default="", show_default="the issuer", help="Comma-separated list of the audiences of the API server."
)
@click.option(
    "--service-account-max-token-expiration",
    "max_token_seconds",
    type=click.IntRange(min=0),
    default=0,
    show_default="no maximum",
    help="Maximum lifetime of a token of a service account in seconds. Longer requests are shortened.",
)
@click.option(
    "--service-account-extend-token-expiration/--no-service-account-extend-token-expiration",
    "extend_tokens",
    default=True,
    help="Let the tokens in pods work for a year, although kubelets replace them every hour.",
)
@click.option(
    "--disable-admission-plugins",
    "disabled",
    default="",
    show_default="none",
    help="Comma-separated list of admission plugins that are not called, such as ServiceAccount.",
)
@click.option(
    "--max-requests-inflight",
    "seats",
    type=click.IntRange(min=1),
    default=DEFAULTS.seats,
    help="Maximum number of concurrent single-object calls. Further calls wait in queues, one queue per user.",
)
@click.option(
    "--service-cluster-ip-range",
    "networks",
    default="10.96.0.0/16",
    help="CIDR of the cluster IPs of services, or a comma-separated pair of an IPv4 and an IPv6 CIDR. A new cluster stores it "
    'as the ServiceCIDR "kubernetes". Add more ranges as ServiceCIDR objects.',
)
@click.option(
    "--kubernetes-service-port",
    "kubernetes_port",
    type=click.IntRange(1, 65535),
    default=DEFAULTS.kubernetes_port,
    help="Port of the service kubernetes, at which pods find the gateways. Proxies without root need one from 1024 on.",
)
@click.option(
    "--service-node-port-range", "node_ports", default="30000-32767", help="Range of the node ports of services, inclusive."
)
@click.option(
    "--min-request-timeout",
    type=click.FloatRange(min=1),
    default=DEFAULTS.min_request_timeout,
    help="Minimum duration of a watch in seconds. Each watch ends after a random time between one and two times this value, "
    "and the client starts another one.",
)
@click.option(
    "--default-not-ready-toleration-seconds",
    "not_ready_seconds",
    type=click.IntRange(min=0),
    default=DEFAULT_TOLERATION_SECONDS,
    help="tolerationSeconds of the notReady:NoExecute toleration that is added to every pod without such a toleration.",
)
@click.option(
    "--default-unreachable-toleration-seconds",
    "unreachable_seconds",
    type=click.IntRange(min=0),
    default=DEFAULT_TOLERATION_SECONDS,
    help="tolerationSeconds of the unreachable:NoExecute toleration that is added to every pod without such a toleration.",
)
@click.option("--audit-log-path", "audit", type=click.Path(path_type=Path), help="Path of the audit log of all writes.")
@click.option(
    "--stay-on-cpu",
    type=click.IntRange(min=0),
    help="Pin the process to this CPU while it handles many small calls, for machines with more busy processes than CPUs.",
)
@click.option(
    "--profile-stages", is_flag=True, help="Report CPU time by stage in /metrics. This option uses a few percent of CPU time."
)
@click.option("--insecure", is_flag=True, help="Serve without TLS. Every client has all permissions.")
@flags.tracing_endpoint_option
@click.option(
    "--tracing-sampling-rate-per-million",
    type=click.IntRange(0, 1_000_000),
    default=0,
    help="Number of calls per million that start a trace, among the calls without a trace context.",
)
def main(
    name: str,
    listen: tuple[str, int],
    http: tuple[str, int],
    etcd: str,
    prefix: str,
    cluster_id: str,
    etcd_tls: TlsFiles | None,
    kubelet_tls: TlsFiles | None,
    cert: Path | None,
    key: Path | None,
    ca: Path | None,
    tokens: Path | None,
    token_listen: tuple[str, int] | None,
    signing_key: Path | None,
    verifying_keys: tuple[Path, ...],
    issuer: str,
    jwks_uri: str,
    api_audiences: str,
    max_token_seconds: int,
    extend_tokens: bool,
    disabled: str,
    networks: str,
    node_ports: str,
    not_ready_seconds: int,
    unreachable_seconds: int,
    audit: Path | None,
    event_max_count: int,
    event_max_bytes: int,
    stay_on_cpu: int | None,
    profile_stages: bool,
    insecure: bool,
    tracing_endpoint: str | None,
    tracing_sampling_rate_per_million: int,
    **settings: Any,
) -> None:
    """The API server validates and stores the objects of the cluster in etcd. All other components connect to it."""
    if profile_stages:
        stage_cpu.install_profiler()
    endpoints = [endpoint.strip() for endpoint in etcd.split(",") if endpoint.strip()]
    if not endpoints:
        raise click.BadParameter("at least one address is required", param_hint="--etcd")
    try:
        check_prefix(prefix)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--etcd-prefix") from None
    services = ServiceRanges(
        _parse_option(parse_networks, networks, "--service-cluster-ip-range"),
        _parse_option(parse_node_ports, node_ports, "--service-node-port-range"),
    )
    if token_listen is not None and tokens is None and signing_key is None:
        raise click.UsageError("--token-listen requires --token-auth-file or --service-account-signing-key-file")
    if 0 < max_token_seconds < MIN_SECONDS:
        message = f"must be at least {MIN_SECONDS} seconds"
        raise click.BadParameter(message, param_hint="--service-account-max-token-expiration")
    audiences = tuple(filter(None, map(str.strip, api_audiences.split(",")))) or (issuer,)
    root_ca = ca.read_bytes() if ca is not None else b""
    account_tokens = None
    if signing_key is not None:
        keys = _token_keys(signing_key, verifying_keys)
        account_tokens = TokenSettings(keys.current, issuer, audiences, max_token_seconds, extend_tokens, jwks_uri, root_ca)
    if insecure:
        tls = None
        if tokens:
            raise click.UsageError("--token-auth-file cannot be used with --insecure")
    elif cert and key and ca:
        tls = TlsFiles(ca, cert, key)
    else:
        needed = "--tls-cert-file, --tls-private-key-file and --client-ca-file"
        raise click.UsageError(f"{needed} are required; create the files with `pinnace pki`, or use --insecure")
    options = ServerOptions(
        listen=format_address(listen),
        http=http,
        etcd=tuple(endpoints),
        prefix=prefix,
        etcd_tls=etcd_tls,
        tls=tls,
        tokens=tokens,
        tokens_at=format_address(token_listen) if token_listen is not None else None,
        audit=audit,
        processor=stay_on_cpu,
        settings=ServerSettings(
            events=EventLimits(event_max_count, event_max_bytes),
            services=services,
            tolerations=DefaultTolerationSeconds(not_ready_seconds, unreachable_seconds),
            kubelets=_kubelet_client(kubelet_tls) if kubelet_tls is not None or tls is None else DEFAULTS.kubelets,
            tracer=flags.connect_tracer_option(
                tracing_endpoint, "apiserver", name, per_million=tracing_sampling_rate_per_million
            ),
            preempted=count_preemptions,
            account_tokens=account_tokens,
            disabled_plugins=_parse_option(parse_plugin_names, disabled, "--disable-admission-plugins"),
            cluster=IdentityClaim(
                cluster_id, authority_reader(tls.ca) if tls is not None else frozenset, _describe_storage(endpoints, prefix)
            ),
            **settings,
        ),
    )
    # A single create runs twenty callbacks of the event loop, most of them in gRPC. uvloop saves 5% of the server's CPU time.
    sys.exit(process.run_component(lambda stop: serve(stop, options), new_loop=uvloop.new_event_loop))


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The options of the command line. `serve` opens the file `audit` and adds it to the settings. `tls` is None with
    --insecure."""

    listen: str
    http: tuple[str, int]
    etcd: tuple[str, ...]
    prefix: str
    etcd_tls: TlsFiles | None
    tls: TlsFiles | None
    tokens: Path | None
    tokens_at: str | None
    audit: Path | None
    processor: int | None
    settings: ServerSettings


def _parse_option(parse: Callable[[str], T], text: str, option: str) -> T:
    """Raises click.BadParameter."""
    try:
        return parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None


def _describe_storage(endpoints: Sequence[str], prefix: str) -> str:
    return f"etcd at {','.join(endpoints)}" + (f" below {prefix}" if prefix else "")


def _kubelet_client(tls: TlsFiles | None) -> GrpcKubelets:
    """Raises click.BadParameter."""
    try:
        return GrpcKubelets(tls)
    except OSError as error:
        raise click.BadParameter(str(error), param_hint="--kubelet-client-certificate") from None


def _token_keys(signing: Path, verifying: Sequence[Path]) -> TokenKeyFiles:
    """Raises click.BadParameter."""
    try:
        return TokenKeyFiles(signing, verifying)
    except (OSError, ValueError) as error:
        raise click.BadParameter(str(error), param_hint="--service-account-signing-key-file") from None


async def serve(stop: asyncio.Event, options: ServerOptions) -> None:
    """Serve until `stop` is set. Raises OSError."""
    storage: Storage = MeasuredStorage(EtcdStorage(options.etcd, tls=options.etcd_tls), metrics.observe_etcd)
    if options.prefix:
        storage = PrefixedStorage(storage, options.prefix)
    tokens = TokenFile(options.tokens) if options.tokens is not None else None
    authenticator = RequestAuthenticator(SYSTEM_CLOCK.time, tokens) if options.tls is not None else None
    audit = AuditLog(options.audit, metrics.AuditMeter()) if options.audit is not None else None
    settings = replace(options.settings, tokens=tokens or NoTokenAuthenticator(), audit=audit or options.settings.audit)
    server = ApiServer(storage, authenticator, settings)
    affinity = ProcessorPinning(options.processor) if options.processor is not None else None
    status = StatusServer(*options.http, {"cache": server.readiness}, asyncio.get_running_loop())
    status.start()
    try:
        if options.tls is not None and options.tokens_at is not None:
            server.listen_for_tokens(options.tokens_at, options.tls)
        address = await server.start(options.listen, options.tls)
        log.info("serving on %s, status on %s, etcd at %s", address, status.address, ",".join(options.etcd))
        async with asyncio.TaskGroup() as group:
            running: list[asyncio.Task[Any]] = [
                group.create_task(run_unending(type(part).__name__, part.run)) for part in (server, audit) if part is not None
            ]
            if affinity is not None:
                running.append(group.create_task(affinity.run()))  # returns immediately if the CPU is not available
            await stop.wait()
            await server.stop()
            for part in running:
                part.cancel()
    finally:
        status.stop()
        await server.close()
        await storage.close()
        await asyncio.to_thread(settings.tracer.close)


if __name__ == "__main__":
    main()
