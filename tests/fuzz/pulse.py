"""How long does the server keep a small question waiting, while others send it what they like?

Asked from a thread of its own: the event loop of the one who makes hostile messages is busy, too. What counts is the CPU time
that the server has used meanwhile: on a machine with other work a question waits for that, too.
"""

import threading
import time
from collections.abc import Callable

import grpc

from pinnace.api.version_pb2 import GetVersionRequest
from pinnace.runtime.tls import TlsFiles

_INTERVAL = 0.05
_PATIENCE = 30.0


class Pulse:
    """A context: asks from its beginning to its end."""

    def __init__(self, address: str, tls: TlsFiles, cpu: Callable[[], float]) -> None:
        """`cpu`: the seconds that the server has used so far."""
        self._address = address
        self._cpu = cpu
        self._credentials = tls.read().for_channel()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="pulse", daemon=True)
        self.longest = 0.0
        """Seconds of CPU time."""
        self.slowest = 0.0
        """Seconds until an answer came, for whatever reason."""
        self.error = ""
        """Why a question had no answer."""

    def __enter__(self) -> "Pulse":
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _ask(self) -> None:
        request = GetVersionRequest().SerializeToString()
        with grpc.secure_channel(self._address, self._credentials) as channel:
            question = channel.unary_unary("/pinnace.v1.Version/Get")
            while not self._stopping.wait(_INTERVAL):
                asked = time.monotonic()
                try:
                    began = self._cpu()
                    question(request, timeout=_PATIENCE, wait_for_ready=True)
                    self.longest = max(self.longest, self._cpu() - began)
                except (grpc.RpcError, OSError) as error:
                    self.error = f"a small question had no answer: {error}"
                    return
                self.slowest = max(self.slowest, time.monotonic() - asked)
