"""The web server of the images nginx and httpd."""

import http.client
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinnace.kubelet.runtime.process.atomic_writer import ProjectedFile, write_atomically
from pinnace.kubelet.runtime.process.web_server import DocumentRoot, WebServer


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "html"
    folder.mkdir()
    (tmp_path / "secret").write_text("secret")
    return folder


@pytest.fixture
def server(documents: Path) -> Iterator[WebServer]:
    with WebServer(("127.0.0.1", 0), DocumentRoot(str(documents)), b"the default page") as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join(10)


def fetch(server: WebServer, path: str, method: str = "GET") -> tuple[int, str, str]:
    """Status, type and body."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request(method, path)
    response = connection.getresponse()
    result = response.status, response.getheader("Content-Type", ""), response.read().decode()
    connection.close()
    return result


def test_files_folders_and_the_default_page(server: WebServer, documents: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert fetch(server, "/") == (200, "text/html; charset=utf-8", "the default page")
    (documents / "sub").mkdir()
    (documents / "sub/index.html").write_text("sub page")
    (documents / "empty").mkdir()
    (documents / "a b.css").write_text("p{}")
    assert fetch(server, "/sub/?query") == (200, "text/html; charset=utf-8", "sub page")
    assert fetch(server, "/a%20b.css") == (200, "text/css; charset=utf-8", "p{}")
    assert fetch(server, "/a%20b.css", "HEAD") == (200, "text/css; charset=utf-8", "")
    assert [fetch(server, path)[0] for path in ("/none", "/empty/")] == [404, 403]
    assert fetch(server, "/", "POST")[0] == 501
    lines = capfd.readouterr().out.splitlines()
    assert '"GET /none HTTP/1.1" 404' in "\n".join(lines) and len(lines) == 7


def test_page_of_a_config_map_is_current(server: WebServer, documents: Path) -> None:
    for page in ("one", "two"):
        write_atomically(documents, {"index.html": ProjectedFile(page.encode(), 0o644)})
        assert fetch(server, "/")[2] == page


def test_only_regular_files_inside_the_folder_are_served(server: WebServer, documents: Path, tmp_path: Path) -> None:
    (documents / "out").symlink_to(tmp_path / "secret")
    (documents / "up").symlink_to("..")
    os.mkfifo(documents / "pipe")
    for path in ("/../secret", "/%2e%2e/secret", "/out", "/up/secret", "/up/", "/pipe", "/a%00b"):
        status, _, body = fetch(server, path)
        assert status in (403, 404) and "secret" not in body.lower(), path


def test_request_cannot_write_lines_of_the_log(server: WebServer, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as connection:
        connection.sendall(b"GET /\x1b[2Jx\x85 HTTP/1.0\r\nUser-Agent: a\tb\r\n\r\n")
        while connection.recv(1000):
            pass
    (line,) = capfd.readouterr().out.splitlines()
    assert "\\x1b[2Jx\\x85" in line and "\x1b" not in line
