"""`pinnace doctor`: diagnoses this machine, the client configuration and the cluster, and prints hints.

The checks of the configuration run first. The servers are checked only if the configuration names them.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from shlex import quote

import click

from pinnace.cli.command import verb
from pinnace.cli.doctor import machine, servers
from pinnace.cli.doctor.machine import (
    DEADLINE,
    DoctorCheck,
    Finding,
    FindingLevel,
    build_ok,
    build_problem,
    format_findings,
    run_checks,
)
from pinnace.cli.local import clusters
from pinnace.cli.outcomes import ExitCode, Reported
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import print_result
from pinnace.client.config import ClientConfig, configuration_in_use
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.errors import FolderError
from pinnace.cluster.folder import ClusterFolder
from pinnace.cluster.spec import ELECTION, PROXY, ClusterState, data_dir_flag, default_data_dir, pki_folder
from pinnace.runtime import process


@verb(
    "doctor",
    examples="""
        pinnace doctor
        pinnace doctor -o json | jq '.[] | select(.level != "ok")'
    """,
)
@clusters.data_dir_option
@click.option("-o", "--output", type=click.Choice(["json"]), help="The output format.")
def doctor(settings: Settings, data_dir: Path | None, output: str | None) -> None:
    """Diagnose a cluster and this client.

    Checks this machine, the client configuration, the API servers in it and, for a local cluster, the processes. For each
    problem it suggests a fix. Nothing is changed. The exit code is 10 when there is a problem; warnings do not count.
    `--timeout` applies to each check.
    """
    folder = clusters.named_data_dir(settings, data_dir)
    findings = process.run_command(examine_cluster(settings, folder, settings.timeout or DEADLINE))
    print_result(
        json.dumps([asdict(finding) for finding in findings], indent=4) + "\n"
        if output == "json"
        else format_findings(findings)
    )
    if any(finding.level is FindingLevel.PROBLEM for finding in findings):
        raise Reported(ExitCode.VERDICT)


async def examine_cluster(settings: Settings, data_dir: Path | None, deadline: float) -> list[Finding]:
    """Run the checks, without those of the servers of a stopped cluster. `deadline`: seconds for each check. `data_dir`: of the
    local cluster; None: that of the context, or the default."""
    config: ClientConfig | None = None
    state: ClusterState | None = None

    def configured() -> Sequence[Finding]:
        nonlocal config
        config, findings = machine.check_configuration(settings)
        return findings

    known = await run_checks([DoctorCheck("configuration", configured)], deadline)
    elsewhere = data_dir is None and config is not None and config.data_dir is None
    folder = data_dir or (config.data_dir if config is not None else None) or default_data_dir()

    def local() -> Sequence[Finding]:
        nonlocal state
        try:
            state = ClusterFolder(folder).read()
        except FolderError as error:
            return [build_problem("cluster", error.message, error.hint)]
        if state is not None:
            return []
        if config is not None and config.data_dir == folder:
            hint = "`pinnace up` starts one; `pinnace down` removes the context"
            return [build_problem("cluster", f"there is none in {folder}, where the context says it is", hint)]
        return [build_ok("cluster", f"none has been started in {folder}")]

    here = [] if elsewhere else [DoctorCheck("cluster", local)]
    known += await run_checks([*_machine_checks(folder, elsewhere=elsewhere), *here], deadline)
    running = [DoctorCheck("processes", partial(servers.check_processes, state))] if state is not None else []
    known += await run_checks([*_file_checks(settings, config, state), *running], deadline)
    if config is not None:
        known += await _server_checks(config, state, deadline)
    return known


def _machine_checks(folder: Path, *, elsewhere: bool) -> list[DoctorCheck]:
    always = [
        DoctorCheck("python", machine.check_python),
        DoctorCheck("packages", machine.check_packages),
        DoctorCheck("etcd", partial(machine.check_etcd, elsewhere=elsewhere)),
    ]
    local = [
        DoctorCheck("disk", partial(machine.check_disk, folder)),
        DoctorCheck("memory", machine.check_memory),
        DoctorCheck("files", machine.check_open_files),
        DoctorCheck("ports", machine.check_ports),
    ]
    return always if elsewhere else [*always, *local]


def _file_checks(settings: Settings, config: ClientConfig | None, state: ClusterState | None) -> list[DoctorCheck]:
    """Return the checks of contexts, keys and certificates, without duplicates."""
    tls = config.tls if config is not None else None
    keys, certificates = set[Path](), set[Path]()
    if tls is not None:
        files = configuration_in_use(settings.context, settings.kubeconfig)[0].documents
        keys |= set(files) if tls.token else {path for path in (tls.key,) if path is not None}
        certificates |= {path for path in (tls.ca, tls.cert) if path is not None}
    if state is not None:
        pki = pki_folder(state.spec.data_dir)
        keys |= set(pki.rglob("*.key"))
        certificates |= set(pki.rglob("*.crt"))

    def contexts() -> Sequence[Finding]:
        expected = Cluster.load(state.spec.data_dir).config if state is not None else None
        return machine.check_contexts(settings, expected, clusters.is_dead_context, data_dir_flag)

    return [
        DoctorCheck("contexts", contexts),
        DoctorCheck("keys", partial(machine.check_private_keys, sorted(keys))),
        DoctorCheck("certificates", partial(machine.check_certificates, sorted(certificates), partial(hint_at_renewal, state))),
    ]


def hint_at_renewal(state: ClusterState | None, certificate: Path) -> str:
    """Return a hint for the renewal of a certificate. `state`: of the local cluster, if the certificate belongs to one."""
    pki = pki_folder(state.spec.data_dir) if state is not None else None
    if pki is None or not certificate.is_relative_to(pki):
        return "`pinnace pki` makes new ones, where its authority is"
    if certificate.name == "ca.crt":
        return "`pinnace up --fresh`: a new cluster has a new authority; it has none of the objects of this one"
    if certificate.parent.name == "users":
        return f"make a new one: pinnace pki {quote(str(pki))} --user {certificate.stem}, and its --group as before"
    return f"`pinnace restart{data_dir_flag(pki.parent)}` makes new ones; what runs takes them up"


async def _server_checks(config: ClientConfig, state: ClusterState | None, deadline: float) -> list[Finding]:
    ours = state is not None and not set(config.endpoints).isdisjoint(state.endpoints)
    if state is not None and ours and state.stopped:
        return []
    findings = await run_checks(
        [DoctorCheck("server", partial(servers.check_server, config, endpoint)) for endpoint in config.endpoints], deadline
    )
    if all(finding.level is FindingLevel.PROBLEM for finding in findings):
        return findings
    expected = servers.list_expected_elections(state) if state is not None and ours else [ELECTION]
    more = [
        DoctorCheck("clock", partial(servers.check_clock, config)),
        DoctorCheck("leaders", partial(servers.check_leaders, config, expected)),
    ]
    if state is not None and ours and state.processes_of(PROXY):
        more.append(DoctorCheck("services", partial(servers.check_services, config, state)))
    return findings + await run_checks(more, deadline)
