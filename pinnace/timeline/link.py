"""Requests for one-time links to the timeline, at a gateway."""

import http.client
import json

from pinnace.runtime.tls import TlsFiles

TIMEOUT = 10.0
PATH = "/timeline/links"


class LinkError(Exception):
    """The gateway gave no link. The message names the reason."""


def request_link(address: str, tls: TlsFiles) -> str:
    """The URL of the timeline of the gateway at "host:port", for the user of the certificate or token. Raises LinkError, and
    OSError if the files cannot be read."""
    context = tls.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPSConnection(host.strip("[]"), int(port), timeout=TIMEOUT, context=context)
    headers = {"Content-Length": "0"} | ({"Authorization": f"Bearer {tls.token}"} if tls.token else {})
    try:
        connection.request("POST", PATH, headers=headers)
        response = connection.getresponse()
        document = json.loads(response.read(1 << 16))
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise LinkError(f"the gateway at {address} does not answer: {error}") from None
    finally:
        connection.close()
    if response.status != 201:
        raise LinkError(str(document.get("message", f"the gateway answered {response.status}")))
    return str(document["url"])
