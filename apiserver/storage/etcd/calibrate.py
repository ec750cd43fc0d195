"""The baseline of benchmarks: the rate at which a Python client writes to this etcd with one key per transaction.

`python -m pinnace.apiserver.storage.etcd.calibrate --etcd HOST:PORT` prints JSON. It uses etcd's stubs and not EtcdStorage, so
that changes of the measured code do not change the baseline.
"""

import asyncio
import json
import time

import click
import grpc.aio
from aetcd.rpc import Compare, DeleteRangeRequest, KVStub, PutRequest, RequestOp, TxnRequest

from pinnace.apiserver.storage.etcd.members import add_tls_options
from pinnace.runtime.tls import TlsFiles

PREFIX = b"/calibration/"
VALUE = b"x" * 256
CALL_TIMEOUT = 10.0


@click.command(context_settings={"show_default": True})
@click.option("--etcd", required=True, metavar="HOST:PORT", help="The member to measure.")
@add_tls_options
@click.option("--callers", type=click.IntRange(min=1), default=64, help="Number of concurrent transactions.")
@click.option("--seconds", type=click.FloatRange(min=0.1), default=2.0, help="Duration of the measurement in seconds.")
def main(etcd: str, etcd_tls: TlsFiles | None, callers: int, seconds: float) -> None:
    """Measure single-operation transactions per second, and remove the written keys from etcd."""
    rate, cpu = asyncio.run(calibrate(etcd, etcd_tls, callers, seconds))
    click.echo(json.dumps({"transactions_per_s": round(rate, 1), "client_cpu_us": round(cpu * 1e6, 1), "callers": callers}))


async def calibrate(endpoint: str, tls: TlsFiles | None, callers: int, seconds: float) -> tuple[float, float]:
    """Return the transactions per second, and the CPU seconds of this client per transaction."""
    async with _open_channel(endpoint, tls) as channel:
        etcd = KVStub(channel)
        await asyncio.gather(*(_create(etcd, caller, 0) for caller in range(callers)))  # connects and warms up
        started, cpu = time.monotonic(), time.process_time()
        counts = await asyncio.gather(*(_create_until(etcd, caller, started + seconds) for caller in range(callers)))
        elapsed, cpu = time.monotonic() - started, time.process_time() - cpu
        await etcd.DeleteRange(DeleteRangeRequest(key=PREFIX, range_end=PREFIX[:-1] + b"0"), timeout=CALL_TIMEOUT)
    return sum(counts) / elapsed, cpu / sum(counts)


def _open_channel(endpoint: str, tls: TlsFiles | None) -> grpc.aio.Channel:
    options = (("grpc.enable_http_proxy", 0),)
    if tls is None:
        return grpc.aio.insecure_channel(endpoint, options)
    return grpc.aio.secure_channel(endpoint, tls.read().for_channel(), options)


async def _create_until(etcd: KVStub, caller: int, deadline: float) -> int:
    number = 0
    while time.monotonic() < deadline:
        number += 1
        await _create(etcd, caller, number)
    return number


async def _create(etcd: KVStub, caller: int, number: int) -> None:
    """Create a key that must not exist, like the creation of an API object."""
    key = PREFIX + f"{caller}/{number}".encode()
    absent = Compare(key=key, target=Compare.CREATE, result=Compare.EQUAL, create_revision=0)
    put = RequestOp(request_put=PutRequest(key=key, value=VALUE))
    await etcd.Txn(TxnRequest(compare=[absent], success=[put]), timeout=CALL_TIMEOUT)


if __name__ == "__main__":
    main()
