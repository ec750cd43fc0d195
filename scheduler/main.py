"""The command line of `pinnace-scheduler`."""

import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from pinnace.api.records import CacheDump, QueueDump, to_json
from pinnace.client.client import Client
from pinnace.client.config import ClientConfig
from pinnace.client.connection import Connection
from pinnace.client.flags import Servers, server_options
from pinnace.client.informer import RestartSupervisor
from pinnace.client.standby import ProgressTimeout
from pinnace.runtime import flags, process
from pinnace.runtime.configuration import ConfigurationError
from pinnace.runtime.http import Page, StatusServer
from pinnace.runtime.tracing import Tracer
from pinnace.scheduler import config, metrics
from pinnace.scheduler.framework.plugin_errors import plugin_on_stack
from pinnace.scheduler.recording import InputRecording
from pinnace.scheduler.scheduler import Scheduler

log = logging.getLogger(__name__)

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("pinnace-scheduler", cls=flags.ComponentCommand)
@flags.replica_name_option
@server_options
@click.option(
    "--http",
    type=flags.parse_address_option,
    default="127.0.0.1:7481",
    help="Address of /metrics, /livez, /readyz, /debug/queue and /debug/cache.",
)
@click.option(
    "--config",
    "file",
    type=_FILE,
    help="A KubeSchedulerConfiguration file. scheduler/config.py lists the supported fields.",
)
@click.option(
    "--plugin",
    "plugins",
    multiple=True,
    help="An out-of-tree plugin: module:Class or path/to/file.py:Class. Can be repeated.",
)
@click.option(
    "--write-config-to",
    "written",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write the configuration with all defaults to this file and exit.",
)
@click.option("--seed", default=0, help="Seed of the choice between nodes with equal scores.")
@click.option(
    "--record",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="File to which the inputs of all decisions are appended, for a replay (pinnace/scheduler/recording.py).",
)
@flags.tracing_endpoint_option
def main(
    name: str,
    servers: Servers,
    http: tuple[str, int],
    file: Path | None,
    plugins: Sequence[str],
    written: Path | None,
    seed: int,
    record: Path | None,
    tracing_endpoint: str | None,
) -> None:
    """Select a node for each pod. One replica is the leader; the other replicas are standbys."""
    try:
        configuration = config.read_configuration(file, seed=seed) if file else config.Configuration(seed=seed)
        for plugin in plugins:
            configuration = config.with_plugin(configuration, plugin)
        config.check_configuration(configuration)
    except ConfigurationError as error:
        raise click.UsageError(f"{file}: {error}" if file else str(error)) from None
    if written is not None:
        written.write_text(config.write_configuration(configuration))
        return
    known = servers()
    try:
        recording = InputRecording(record) if record is not None else None
    except OSError as error:
        raise click.BadParameter(f"{record}: {error.strerror}", param_hint="--record") from None
    tracer = flags.connect_tracer_option(tracing_endpoint, "scheduler", name)
    sys.exit(
        process.run_component(
            lambda stop: serve(stop, http, known, name, configuration, tracer, recording), blame=plugin_on_stack
        )
    )


async def serve(
    stop: asyncio.Event,
    http: tuple[str, int],
    servers: ClientConfig,
    name: str,
    configuration: config.Configuration,
    tracer: Tracer,
    recording: InputRecording | None = None,
) -> None:
    """Run the scheduler until `stop` is set."""
    connection = Connection(servers.endpoints, tls=servers.tls)
    patience = ProgressTimeout()
    lives = RestartSupervisor(
        lambda: Scheduler(Client(connection), name, configuration, tracer=tracer, patience=patience, recording=recording)
    )
    metrics.register_collectors(lambda: lives.now)
    loop = asyncio.get_running_loop()
    pages: dict[str, Page] = {
        QueueDump.path: lambda: to_json(lives.now.debugger.show_queue()),
        CacheDump.path: lambda: to_json(lives.now.debugger.show_cache()),
    }
    status = StatusServer(*http, lives.checks, loop, pages)
    loop.add_signal_handler(signal.SIGUSR2, lambda: lives.now.debugger.log_state())
    status.start()
    log.info("scheduler %s, status on %s, API servers at %s", name, status.address, ",".join(servers.endpoints))
    try:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(lives.run())
            await stop.wait()
            await lives.now.stop()
            running.cancel()
    finally:
        status.stop()
        await connection.close()
        await asyncio.to_thread(tracer.close)


if __name__ == "__main__":
    main()
