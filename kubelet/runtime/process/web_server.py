"""The container of the images "nginx" and "httpd": a small web server for static files. Standard library only.

`python -m pinnace.kubelet.runtime.process.web_server DOCUMENTS [PORT]` serves GET and HEAD on $POD_IP. DOCUMENTS is the path in
the container. Where the process has no mount namespace, it is below $PINNACE_ROOT.

A folder is answered with its index.html. Without one the root folder has a default page, and other folders are refused (403):
files are never listed. Answers are not cached, so a changed ConfigMap is seen at the next request. Each request is one line on
stdout, in the format of the access log of nginx. SIGTERM ends the server.

Limits: CONNECTIONS at the same time, TIMEOUT seconds without data, MAX_REQUESTS for each connection. http.server limits lines
(64 KiB) and headers (100). Only regular files inside DOCUMENTS are served. Symbolic links are followed if they stay inside, or
if the document folder itself is reached through them (volumes of ConfigMaps consist of links).
"""

import http.server
import mimetypes
import os
import signal
import stat
import sys
import threading
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote

CONNECTIONS = 64
TIMEOUT = 30.0
MAX_REQUESTS = 1000
CHUNK = 1 << 16
PAGE = """<!DOCTYPE html>
<html>
<head><title>Welcome to {image}!</title></head>
<body>
<h1>Welcome to {image}!</h1>
<p>Pod {pod} serves this page. Mount your pages at {documents}.</p>
</body>
</html>
"""
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
"""Control characters of a request must not write lines of their own."""


class DocumentRoot:
    """The files below a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def open_file(self, path: str) -> BinaryIO | None:
        """The file of a URL path; index.html of a folder. None: there is no such file. Raises PermissionError for a file that
        must not be served, and ValueError for an invalid path.
        """
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise PermissionError(path)
        root = Path(os.path.realpath(self._folder))
        target = _resolve_inside(root, root.joinpath(*parts))
        if target.is_dir():
            index = _resolve_inside(root, target / "index.html")
            if not index.exists() and target != root:
                raise PermissionError(path)
            target = index
        try:
            descriptor = os.open(target, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe must not block the server
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise PermissionError(path)
        return os.fdopen(descriptor, "rb")


def _resolve_inside(root: Path, path: Path) -> Path:
    """The path without symbolic links. Raises PermissionError if it is not below the root."""
    target = Path(os.path.realpath(path))
    if not target.is_relative_to(root):
        raise PermissionError(str(path))
    return target


class WebRequestHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "pinnace-web"
    sys_version = ""
    timeout = TIMEOUT
    server: "WebServer"

    def setup(self) -> None:
        super().setup()
        self._left = MAX_REQUESTS
        self._length = 0

    def do_GET(self) -> None:
        self._answer_request(with_body=True)

    def do_HEAD(self) -> None:
        self._answer_request(with_body=False)

    def version_string(self) -> str:
        return self.server_version

    def _answer_request(self, *, with_body: bool) -> None:
        self._left -= 1
        self._length = 0
        if self._left <= 0 or self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # a body is not read
        path = unquote(self.path.partition("?")[0].partition("#")[0], errors="replace")
        try:
            file = self.server.documents.open_file(path)
        except (OSError, ValueError):
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        if file is None:
            if path.strip("/"):
                self.send_error(HTTPStatus.NOT_FOUND)
            else:
                self._send_body("text/html", self.server.page, with_body=with_body)
            return
        with file:
            name = path if not path.endswith("/") and "." in path.rpartition("/")[2] else "index.html"
            self._send_file(file, mimetypes.guess_type(name)[0] or "application/octet-stream", with_body=with_body)

    def _send_body(self, kind: str, body: bytes, *, with_body: bool) -> None:
        self._send_headers(kind, len(body))
        if with_body:
            self.wfile.write(body)

    def _send_file(self, file: BinaryIO, kind: str, *, with_body: bool) -> None:
        left = os.fstat(file.fileno()).st_size
        self._send_headers(kind, left)
        while with_body and left:
            data = file.read(min(CHUNK, left))
            if not data:  # the file was truncated
                self.close_connection = True
                return
            left -= len(data)
            self.wfile.write(data)

    def _send_headers(self, kind: str, length: int) -> None:
        self._length = length
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", f"{kind}; charset=utf-8" if kind.startswith("text/") else kind)
        self.send_header("Content-Length", str(length))
        self.send_header("Cache-Control", "no-cache")
        self.send_header("X-Content-Type-Options", "nosniff")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        moment = time.strftime("%d/%b/%Y:%H:%M:%S %z")
        agent = self.headers.get("User-Agent", "-") if getattr(self, "headers", None) else "-"
        status = code.value if isinstance(code, HTTPStatus) else code
        line = (
            f'{self.client_address[0]} - - [{moment}] "{self.requestline[:1024]}" {status} {self._length} "-" "{agent[:256]}"'
        )
        sys.stdout.write(f"{line.translate(_CONTROL)}\n")
        sys.stdout.flush()

    def log_message(self, *args: Any) -> None:
        """Errors are in the access log."""


class WebServer(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], documents: DocumentRoot, page: bytes) -> None:
        """`page`: the answer for the root folder if there is no index.html. Raises OSError."""
        self.documents = documents
        self.page = page
        self._slots = threading.BoundedSemaphore(CONNECTIONS)
        super().__init__(address, WebRequestHandler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Further connections wait in the queue of the kernel."""
        self._slots.acquire()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that disconnects is no error."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def documents_folder(path: str) -> str:
    """The folder of the documents: in the root folder of the container, unless it has its own mount namespace."""
    return str(Path(os.environ.get("PINNACE_ROOT", "/")) / path.lstrip("/"))


def main() -> None:
    documents, port = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 80
    image = "nginx" if "nginx" in documents else "httpd"
    page = PAGE.format(image=image, pod=os.environ.get("HOSTNAME", ""), documents=documents).encode()
    host = os.environ.get("POD_IP", "127.0.0.1")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    try:
        server = WebServer((host, port), DocumentRoot(documents_folder(documents)), page)
    except OSError as error:
        sys.exit(f"cannot listen on {host}:{port}: {error.strerror}{_bind_error_hint(error, port)}")
    print(f"serving {documents} on http://{host}:{port}/", file=sys.stderr, flush=True)
    with server:
        server.serve_forever()


def _bind_error_hint(error: OSError, port: int) -> str:
    if isinstance(error, PermissionError) and port < 1024:
        return " (ports below 1024 need root, or net.ipv4.ip_unprivileged_port_start=0)"
    return ""


if __name__ == "__main__":
    main()
