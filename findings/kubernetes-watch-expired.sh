#!/usr/bin/env bash
# expected:   A watch of the Python client whose first event is an error 410 raises ApiException(410), or lists and
#             continues.
# happens:    Without a resource version, the watch ends silently, as if the server had closed it. With one, it asks once
#             more with the version that was refused, and raises only after the second refusal.
# versions:   kubernetes 37.0.2 for Python
# matters:    A controller that starts a watch without a version and gets 410 takes an empty cluster for the truth.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check kubernetes==37.0.2
cd "$folder"
venv/bin/python - <<'END'
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from kubernetes import client, watch

STATUS = {
    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Expired", "code": 410,
    "message": "too old resource version: 5 (9)",
}
versions = []


class Handler(BaseHTTPRequestHandler):
    """Answers each watch with an error 410 as its first event."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        versions.append(parse_qs(urlsplit(self.path).query).get("resourceVersion", [None])[0])
        body = json.dumps({"type": "ERROR", "object": STATUS}).encode() + b"\n"
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
api = client.CoreV1Api(client.ApiClient(client.Configuration(host=f"http://127.0.0.1:{server.server_port}")))


def outcome(**options):
    versions.clear()
    try:
        events = list(watch.Watch().stream(api.list_namespaced_pod, "default", **options))
        return f"ended silently after {len(events)} events", list(versions)
    except client.ApiException as error:
        return f"raised ApiException {error.status}", list(versions)


seen = {"without a resource version": outcome(), "with resource version 5": outcome(resource_version="5")}
for name, (result, asked) in seen.items():
    print(f"{name}: {result}; asked with {asked}")
sys.exit(list(seen.values()) != [("ended silently after 0 events", [None]), ("raised ApiException 410", ["5", "5"])])
END
