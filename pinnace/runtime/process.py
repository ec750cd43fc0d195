"""Entry points of processes: a component that runs until SIGTERM or SIGINT, a command that can be interrupted by SIGINT, and a
helper process that executes requests from its stdin.
"""

import asyncio
import gc
import json
import logging
import os
import resource
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pinnace.runtime import interrupts
from pinnace.runtime.http import stopping
from pinnace.runtime.logs import ProcessFailed
from pinnace.runtime.stalls import Blame, LoopWatchdog
from pinnace.runtime.steps import PROFILE, StepMonitor

log = logging.getLogger(__name__)

R = TypeVar("R")

GC_THRESHOLDS = (1_000, 20, 5_000)
"""The thresholds for gc.set_threshold. Components hold millions of long-lived objects. With Python's defaults, API servers
spent a quarter of their CPU time on traversing them, so full collections are rare. The second threshold bounds the pauses of
the other collections: traversing a million objects took 500 ms, in several processes at once while a cluster was filled, and
leaders and nodes were considered dead. The first threshold bounds the frequent pauses: gRPC leaves a cycle of five objects per
call, and the collection after 2,700 calls took 20 ms. It occurred once per second under load and affected 2% of all gets."""
MAX_LINE = 1 << 20
Handler = Callable[..., Awaitable[Any]]


class FatalError(Exception):
    """Ends the process with this message and without a traceback. Used if the cause is outside the process and a restart does
    not help."""


def run_component(
    main: Callable[[asyncio.Event], Awaitable[None]],
    *,
    grace: float = 10.0,
    new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
    blame: Blame | None = None,
) -> int:
    """Run `main(stop)` on a new event loop, which is created by `new_loop` or by asyncio. The first SIGTERM or SIGINT sets
    `stop`. `main` is cancelled if it does not return within `grace` seconds or before a second signal. Return the exit code: 0
    if `main` returned, 1 if it failed or was cancelled.

    Two watchdogs observe the event loop: pinnace/runtime/steps.py measures its steps, and pinnace/runtime/stalls.py interrupts
    the code that `blame` selects. All exceptions, including SystemExit in a task, are logged with their traceback. Tasks that
    ignore their cancellation do not keep the process alive.
    """

    async def watched() -> int:
        loop, profile = asyncio.get_running_loop(), os.environ.get(PROFILE)
        watch = LoopWatchdog(loop, blame) if blame is not None else LoopWatchdog(loop)
        steps = StepMonitor(loop, Path(profile) if profile else None)
        watch.start()
        steps.start()
        try:
            code = await supervised()
            await _cancel_remaining(code)
            return code
        finally:
            steps.stop()
            watch.stop()

    async def supervised() -> int:
        stop, now = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        stopping.clear()

        def asked() -> None:
            (now if stop.is_set() else stop).set()
            stopping.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, asked)
        task = asyncio.ensure_future(main(stop))
        await _wait_first(task, stop)
        if not task.done():
            log.info("stopping")
            await _wait_first(task, now, grace)
        if not task.done():
            log.error("still running %s; cancelling", "at the second signal" if now.is_set() else f"after {grace:.0f} s")
            task.cancel()
            await asyncio.wait((task,), timeout=1.0)
            return 1
        if task.cancelled():
            log.critical("the main task cancelled itself")
            return 1
        if error := task.exception():
            while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
                error = error.exceptions[0]
            expected = isinstance(error, OSError | FatalError)  # for example, a port in use or a missing file
            failed = ProcessFailed(type(error).__name__, expected).extra
            log.critical("%s", error if expected else "failed", exc_info=None if expected else error, extra=failed)
            return 1
        return 0

    gc.set_threshold(*GC_THRESHOLDS)
    _raise_open_files_limit()
    interrupts.exit_on_lost_interrupt()
    code = interrupts.INTERRUPTED
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            code = runner.run(watched())
    except KeyboardInterrupt:  # raised after the loop has removed its signal handlers
        pass
    except BaseException as error:  # SystemExit in a task would end the process silently
        log.critical("%s was raised in a task", type(error).__name__, exc_info=error)
        code = 1
    finally:
        interrupts.exit_on_signals_with(code)
        sys.stderr.flush()
    return code


def run_command(main: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine like asyncio.run. In the main thread, the first SIGINT cancels `main`, which can clean up, and then
    raises KeyboardInterrupt. The second SIGINT ends the process silently. asyncio would raise it at an arbitrary location,
    which may print a traceback or leave a task that never ends."""
    before = signal.getsignal(signal.SIGINT)
    interrupted = False
    cancel: Callable[[], object] | None = None

    def handle(number: int, frame: object) -> None:
        nonlocal interrupted
        if interrupted:
            os._exit(interrupts.INTERRUPTED)
        interrupted = True
        if cancel is not None:
            cancel()

    async def body() -> R:
        nonlocal cancel
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        cancel = lambda: loop.call_soon_threadsafe(task.cancel)  # noqa: E731 (nonlocal)
        if interrupted:
            task.cancel()
        try:
            return await main
        finally:
            cancel = None

    heeded = before is not signal.SIG_IGN and threading.current_thread() is threading.main_thread()
    if heeded:
        signal.signal(signal.SIGINT, handle)
    try:
        return asyncio.run(body())
    except asyncio.CancelledError:
        if interrupted:
            raise KeyboardInterrupt from None
        raise
    finally:
        if heeded:
            signal.signal(signal.SIGINT, before)


async def _cancel_remaining(code: int) -> None:
    """Cancel the remaining tasks. If some do not end within a second, end the process with this exit code."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        _, left = await asyncio.wait(left, timeout=1.0)
    if left:
        names = ", ".join(sorted(task.get_coro().__qualname__ for task in left)[:5])  # type: ignore[union-attr]  # tasks of coroutines only
        log.error("%d tasks ignore their cancellation: %s; exiting", len(left), names)
        logging.shutdown()
        os._exit(code)


def _raise_open_files_limit() -> None:
    """Raise the soft limit of open files to the hard limit, as Go programs such as etcd and Kubernetes do. The soft limit,
    often 1,024, exists for programs that use select(2).

    Source: https://github.com/golang/go/issues/46279
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # some systems report "infinity" but allow less
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _wait_first(task: asyncio.Future[None], event: asyncio.Event, timeout: float | None = None) -> None:
    """Wait until the task is done or the event is set, for at most `timeout` seconds."""
    waiting = asyncio.ensure_future(event.wait())
    await asyncio.wait((task, waiting), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


class RequestRefused(Exception):
    """A request that cannot be executed. The message is returned as the error."""


async def serve_requests(handlers: Mapping[str, Handler]) -> None:
    """Execute requests from stdin, one JSON object per line, in order. Write one JSON object per request to stdout. Return at
    the end of stdin, so the process does not outlive its parent. A handler receives the other fields of the request as keyword
    arguments.

        {"do": "compact", "revision": 812}  ->  {"answer": null}   or   {"error": "required revision has been compacted"}
    """
    reader = asyncio.StreamReader(MAX_LINE)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        request = json.loads(line)
        try:
            answer = {"answer": await handlers[request.pop("do")](**request)}
        except RequestRefused as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)
