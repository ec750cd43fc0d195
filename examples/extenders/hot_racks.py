"""A scheduler extender: an HTTP service that filters nodes and scores them by the temperature of their racks.

python examples/extenders/hot_racks.py
pinnace-scheduler --server HOST:PORT --config examples/extenders/hot_racks.yaml --http 127.0.0.1:7484
"""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TEMPERATURES = {"a": 22, "b": 27, "c": 34}
"""Degrees Celsius of each rack. The label `rack` of a node names its rack."""


def degrees(node: dict) -> int:
    return TEMPERATURES.get(node["metadata"].get("labels", {}).get("rack"), 25)


def keep_off_hot_racks(pod: dict, nodes: list[dict]) -> dict:
    hot = {node["metadata"]["name"]: "node(s) were in a rack that is too hot" for node in nodes if degrees(node) > 30}
    return {"Nodes": {"items": [node for node in nodes if node["metadata"]["name"] not in hot]}, "FailedNodes": hot}


def like_cool_racks(pod: dict, nodes: list[dict]) -> list[dict]:
    """Scores are from 0 to 10."""
    return [{"Host": node["metadata"]["name"], "Score": max(0, min(10, 30 - degrees(node)))} for node in nodes]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        args = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = {"/filter": keep_off_hot_racks, "/prioritize": like_cool_racks}[self.path]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer(args["Pod"], args["Nodes"]["items"])).encode())


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", 8888), Handler).serve_forever()
