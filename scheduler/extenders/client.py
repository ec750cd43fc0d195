"""Extender clients: over HTTP with the JSON of Kubernetes' extenders, and over gRPC.

JSON fields have the names of the Go types and are read case-insensitively. A bind has an additional field `Fence` with the
fields Election, Token and Secret.

Each HTTP call is a POST in a thread, on a connection of its own. The same thread parses the response; another thread encodes
requests. The timeout covers name resolution and the response. A call that exceeds its timeout fails immediately, and its
connection is closed, which ends the thread. A thread in name resolution cannot be ended, but no caller waits for it beyond its
timeout.

gRPC extenders implement pinnace.v1.Extender (proto/pinnace/api/extender.proto), without TLS. Source:
k8s.io/kube-scheduler/extender/v1
"""

import asyncio
import base64
import json
import re
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, TypeVar
from urllib.parse import urlsplit

import grpc
import grpc.aio
from google.protobuf.message import Message

from pinnace.api.codec import to_dict
from pinnace.api.core_v1_pb2 import Binding, Node, Pod
from pinnace.api.extender_pb2 import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    HostPriorityList,
    MetaPod,
    MetaVictims,
    Victims,
)
from pinnace.api.pods_pb2 import Fence
from pinnace.scheduler.extenders.interface import (
    BIND,
    FILTER,
    PREEMPT,
    PRIORITIZE,
    ExtenderConfiguration,
    ExtenderError,
    ExtenderTls,
    FilterResponse,
    NodeVictims,
    NotSent,
    ResponseLost,
    VictimUids,
)

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
T = TypeVar("T")
BINDS = 32
"""Maximum number of concurrent binds. They use separate threads, so that decisions do not wait for them."""
QUESTIONS = 4
"""Threads for all other calls. Only one call runs at a time, but abandoned calls can occupy their threads for some time and
delay later calls."""
MAX_ANSWER = 64 << 20
"""Maximum size of a response, in bytes."""
_GATEWAY = (502, 504)
"""Status codes of a proxy that has lost the response of the extender."""
R = TypeVar("R", bound=Message)
SCHEME = "grpc://"
METHODS = {FILTER: "Filter", PRIORITIZE: "Prioritize", PREEMPT: "Preempt", BIND: "Bind"}
"""The supported verbs with their gRPC methods."""
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_ANSWER),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
)
_NOT_YET = (grpc.ChannelConnectivity.IDLE, grpc.ChannelConnectivity.CONNECTING)
_OPEN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


class MalformedResponse(ValueError):
    """The response does not have the expected form."""


class ExtenderArgsEncoder:
    """Caches the JSON of unchanged nodes, because encoding nodes takes most of the time of a call."""

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[Node, str]] = {}

    def encode_args(self, pod: Pod, nodes: Sequence[Node], by_name: bool) -> bytes:
        """Encode ExtenderArgs."""
        names = json.dumps([node.metadata.name for node in nodes]) if by_name else "null"
        items = "null" if by_name else f'{{"metadata":{{}},"items":[{",".join(map(self._encode_node, nodes))}]}}'
        self._forget(len(nodes))
        return f'{{"Pod":{json.dumps(to_dict(pod))},"Nodes":{items},"NodeNames":{names}}}'.encode()

    def _encode_node(self, node: Node) -> str:
        name = node.metadata.name
        known = self._nodes.get(name)
        if known is None or known[0] is not node:
            known = self._nodes[name] = node, json.dumps(to_dict(node))
        return known[1]

    def _forget(self, nodes: int) -> None:
        """Clear the cache before it holds many deleted nodes."""
        if len(self._nodes) > 2 * nodes + 1000:
            self._nodes.clear()


def preemption_args(pod: Pod, victims: Mapping[str, NodeVictims], by_uid: bool) -> bytes:
    """Encode ExtenderPreemptionArgs."""

    def shown(pods: Sequence[Pod]) -> list[dict[str, Any]]:
        return [{"UID": item.metadata.uid} if by_uid else to_dict(item) for item in pods]

    by_node = {node: {"Pods": shown(each.pods), "NumPDBViolations": each.violations} for node, each in victims.items()}
    full, meta = (None, by_node) if by_uid else (by_node, None)
    return json.dumps({"Pod": to_dict(pod), "NodeNameToVictims": full, "NodeNameToMetaVictims": meta}).encode()


def binding_args(binding: Binding, fence: Fence) -> bytes:
    """Encode ExtenderBindingArgs and the fence. The fence's secret is in base64, as Go encodes []byte."""
    metadata = binding.metadata
    return json.dumps(
        {
            "PodName": metadata.name,
            "PodNamespace": metadata.namespace,
            "PodUID": metadata.uid,
            "Node": binding.target.name,
            "Fence": {
                "Election": fence.election,
                "Token": fence.token,
                "Secret": base64.b64encode(fence.secret).decode(),
            },
        }
    ).encode()


def parse_filter_result(answer: bytes, by_name: bool) -> tuple[FilterResponse, str]:
    """Parse an ExtenderFilterResult. Return the result and its error. Raise Malformed.

    `by_name` selects NodeNames if the response has both NodeNames and Nodes. If it has neither, no node is left, as in
    Kubernetes.
    """
    result = _read_fields(_parse_json(answer), "the response")
    names, nodes = result.get("nodenames"), result.get("nodes")
    if nodes is not None and not (by_name and names is not None):
        names = [_node_name(item) for item in _read_list(_read_fields(nodes, "Nodes").get("items"), "Nodes.items")]
    left = [_read_text(name, "NodeNames[]") for name in _read_list(names, "NodeNames")]
    failed, unresolvable = _read_texts(result, "FailedNodes"), _read_texts(result, "FailedAndUnresolvableNodes")
    return FilterResponse(left, failed, unresolvable), _error_text(result)


def parse_priorities(answer: bytes) -> list[tuple[str, int]]:
    """Parse a HostPriorityList. Raise Malformed."""
    result = []
    for item in _read_list(_parse_json(answer), "the response"):
        entry = _read_fields(item, "[]")
        result.append((_read_text(entry.get("host"), "Host"), _read_number(entry.get("score", 0), "Score")))
    return result


def parse_preemption_result(answer: bytes) -> dict[str, VictimUids]:
    """Parse an ExtenderPreemptionResult. Raise Malformed."""
    result = _read_fields(_parse_json(answer), "the response")
    victims_by_node = {}
    for node, raw in _read_mapping(result.get("nodenametometavictims"), "NodeNameToMetaVictims").items():
        victims = _read_fields(raw or {}, f"NodeNameToMetaVictims[{node}]")
        pods = [_read_fields(pod, "Pods[]") for pod in _read_list(victims.get("pods"), "Pods")]
        uids = [_read_text(pod.get("uid"), "UID") for pod in pods]
        victims_by_node[node] = VictimUids(uids, _read_number(victims.get("numpdbviolations", 0), "NumPDBViolations"))
    return victims_by_node


def parse_binding_error(answer: bytes) -> str:
    """Return the error of an ExtenderBindingResult. Raise Malformed."""
    return _error_text(_read_fields(_parse_json(answer), "the response"))


def _parse_json(answer: bytes) -> Any:
    """Parse JSON. Invalid Unicode is replaced, as Go does, because it cannot be sent in events."""
    try:
        text = answer.decode(errors="replace")
        parsed = json.loads(text)
        if _SURROGATE.search(text):
            parsed = json.loads(json.dumps(parsed, ensure_ascii=False).encode(errors="replace"))
        return parsed
    except (ValueError, RecursionError) as error:
        raise MalformedResponse(f"the response is not JSON: {error}") from None


def _node_name(node: Any) -> Any:
    return _read_fields(_read_fields(node, "Nodes.items[]").get("metadata"), "Nodes.items[].metadata").get("name")


def _error_text(result: Mapping[str, Any]) -> str:
    return _read_text(result.get("error") or "", "Error")


def _read_texts(result: Mapping[str, Any], name: str) -> dict[str, str]:
    return {key: _read_text(value, f"{name}[{key}]") for key, value in _read_mapping(result.get(name.lower()), name).items()}


def _read_fields(raw: Any, where: str) -> dict[str, Any]:
    """Return the fields by lowercase name."""
    return {name.lower(): value for name, value in _read_mapping(raw, where).items()}


def _read_mapping(raw: Any, where: str) -> Mapping[str, Any]:
    """Return a mapping. null counts as empty."""
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise MalformedResponse(f"{where}: expected an object")
    return raw


def _read_list(raw: Any, where: str) -> list[Any]:
    """Return a list. null counts as empty."""
    if raw is None:
        return []
    if not isinstance(raw, list):
        raise MalformedResponse(f"{where}: expected a list")
    return raw


def _read_text(raw: Any, where: str) -> str:
    if not isinstance(raw, str):
        raise MalformedResponse(f"{where}: expected text")
    return raw


def _read_number(raw: Any, where: str) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int):
        raise MalformedResponse(f"{where}: expected a whole number")
    return raw


class HttpTransport:
    """The HTTP transport. The constructor raises OSError if a file of the TLS configuration cannot be used."""

    def __init__(self, configuration: ExtenderConfiguration) -> None:
        self._configuration = configuration
        self._base = configuration.url_prefix.rstrip("/")
        self._secure = _tls_context(configuration.tls or ExtenderTls()) if urlsplit(self._base).scheme == "https" else None
        self._encoder = ExtenderArgsEncoder()
        self._binders = ThreadPoolExecutor(BINDS, thread_name_prefix="extender-bind")
        self._room = asyncio.Semaphore(BINDS)
        self._askers = ThreadPoolExecutor(QUESTIONS, thread_name_prefix="extender")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="extender-args")  # separate, so that encoding is never delayed
        self._calls: set[_Call] = set()

    async def filter(self, pod: Pod, nodes: Sequence[Node]) -> FilterResponse:
        by_name = self._configuration.node_cache_capable
        body = await self._encode_in_thread(lambda: self._encoder.encode_args(pod, nodes, by_name))
        result, problem = await self._post_verb(FILTER, body, lambda answer: parse_filter_result(answer, by_name))
        if problem:
            raise ExtenderError(FILTER, self._verb_url(FILTER), f": {problem}")
        return result

    async def prioritize(self, pod: Pod, nodes: Sequence[Node]) -> Sequence[tuple[str, int]]:
        by_name = self._configuration.node_cache_capable
        body = await self._encode_in_thread(lambda: self._encoder.encode_args(pod, nodes, by_name))
        return await self._post_verb(PRIORITIZE, body, parse_priorities)

    async def preempt(self, pod: Pod, victims: Mapping[str, NodeVictims]) -> Mapping[str, VictimUids]:
        by_uid = self._configuration.node_cache_capable
        body = await self._encode_in_thread(lambda: preemption_args(pod, victims, by_uid))
        return await self._post_verb(PREEMPT, body, parse_preemption_result)

    async def bind(self, binding: Binding, fence: Fence) -> None:
        async with self._room:
            problem = await self._post_verb(BIND, binding_args(binding, fence), parse_binding_error)
        if problem:
            raise ExtenderError(BIND, self._verb_url(BIND), f": {problem}")

    async def close(self) -> None:
        for call in self._calls:
            call.abandon()
        for threads in (self._writer, self._askers, self._binders):
            threads.shutdown(wait=False, cancel_futures=True)

    def _verb_url(self, verb: str) -> str:
        return f"{self._base}/{self._configuration.verbs[verb]}"

    async def _encode_in_thread(self, write: Callable[[], bytes]) -> bytes:
        return await asyncio.get_running_loop().run_in_executor(self._writer, write)

    async def _post_verb(self, verb: str, body: bytes, decode: Callable[[bytes], T]) -> T:
        url, timeout = self._verb_url(verb), self._configuration.timeout
        threads = self._binders if verb == BIND else self._askers
        loop = asyncio.get_running_loop()
        call = _Call(url, timeout, self._secure, body)
        self._calls.add(call)
        try:
            async with asyncio.timeout(timeout):
                status, answer = await loop.run_in_executor(threads, call.send, decode)
        except TimeoutError:
            kind = _error_kind(call)
            missing = "connection" if kind is NotSent else "response"
            raise kind(verb, url, f": no {missing} within {timeout:g} s") from None
        except MalformedResponse as error:
            raise ExtenderError(verb, url, f": {error}") from None
        except (OSError, HTTPException, UnicodeError) as error:  # UnicodeError: an invalid host name
            raise _error_kind(call)(verb, url, f": {error or type(error).__name__}") from None
        finally:
            self._calls.discard(call)
            call.abandon()
        if answer is None:
            raise (ResponseLost if status in _GATEWAY else ExtenderError)(verb, url, f", code {status}")
        return answer


class _Call:
    """One HTTP call. `send` runs in a thread of the pool; `abandon` may be called from any thread."""

    def __init__(self, url: str, timeout: float, secure: ssl.SSLContext | None, body: bytes) -> None:
        parts = urlsplit(url)
        host = parts.hostname or ""
        self._path = parts.path
        self._connection = (
            HTTPSConnection(host, parts.port, timeout=timeout, context=secure)
            if secure is not None
            else HTTPConnection(host, parts.port, timeout=timeout)
        )
        self._body = body
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._sent = False
        self._given_up = False

    def send(self, decode: Callable[[bytes], T]) -> tuple[int, T | None]:
        """Send the request. Return the status, and the result if it is 200. Raise OSError, HTTPException or Malformed."""
        with closing(self._connection):
            self._connection.connect()
            with self._lock:
                if self._given_up:
                    raise TimeoutError
                self._socket, self._sent = self._connection.sock, True
                body = self._body
            headers = {"Content-Type": "application/json", "Connection": "close"}
            self._connection.request("POST", self._path, body, headers)
            with self._connection.getresponse() as response:
                if response.status != 200:
                    return response.status, None
                answer = response.read(MAX_ANSWER + 1)
        if len(answer) > MAX_ANSWER:
            raise MalformedResponse(f"the response has more than {MAX_ANSWER} bytes")
        return 200, decode(answer)

    def abandon(self) -> bool:
        """End `send` at any stage. Return True if the request may have been sent, or False if it will not be sent.

        The body is dropped, because it can be megabytes in size and the thread may end much later.
        """
        with self._lock:
            self._given_up, self._body = True, b""
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
            return self._sent


def _error_kind(failed: _Call) -> type[ExtenderError]:
    return ResponseLost if failed.abandon() else NotSent


def _tls_context(tls: ExtenderTls) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.ca_file or None)
    if tls.cert_file:
        context.load_cert_chain(tls.cert_file, tls.key_file or None)
    if tls.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class RpcTransport:
    def __init__(self, configuration: ExtenderConfiguration) -> None:
        self._target = configuration.url_prefix.removeprefix(SCHEME).rstrip("/")
        self._timeout = configuration.timeout
        self._by_name = configuration.node_cache_capable
        self._channel: grpc.aio.Channel | None = None  # created by the first call, because it belongs to the running event loop

    async def filter(self, pod: Pod, nodes: Sequence[Node]) -> FilterResponse:
        result = await self._call(FILTER, self._build_args(pod, nodes), ExtenderFilterResult)
        if result.error:
            raise ExtenderError(FILTER, self._verb_url(FILTER), f": {result.error}")
        return FilterResponse(result.nodeNames, dict(result.failedNodes), dict(result.failedAndUnresolvableNodes))

    async def prioritize(self, pod: Pod, nodes: Sequence[Node]) -> Sequence[tuple[str, int]]:
        result = await self._call(PRIORITIZE, self._build_args(pod, nodes), HostPriorityList)
        return [(item.host, item.score) for item in result.items]

    async def preempt(self, pod: Pod, victims: Mapping[str, NodeVictims]) -> Mapping[str, VictimUids]:
        args = ExtenderPreemptionArgs(pod=pod)
        for node, each in victims.items():
            if self._by_name:
                uids = [MetaPod(uid=pod.metadata.uid) for pod in each.pods]
                args.nodeNameToMetaVictims[node].CopyFrom(MetaVictims(pods=uids, numPDBViolations=each.violations))
            else:
                args.nodeNameToVictims[node].CopyFrom(Victims(pods=each.pods, numPDBViolations=each.violations))
        result = await self._call(PREEMPT, args, ExtenderPreemptionResult)
        return {
            node: VictimUids([pod.uid for pod in each.pods], each.numPDBViolations)
            for node, each in result.nodeNameToMetaVictims.items()
        }

    async def bind(self, binding: Binding, fence: Fence) -> None:
        result = await self._call(BIND, ExtenderBindingArgs(binding=binding, fence=fence), ExtenderBindingResult)
        if result.error:
            raise ExtenderError(BIND, self._verb_url(BIND), f": {result.error}")

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()

    def _build_args(self, pod: Pod, nodes: Sequence[Node]) -> ExtenderArgs:
        if self._by_name:
            return ExtenderArgs(pod=pod, nodeNames=[node.metadata.name for node in nodes])
        return ExtenderArgs(pod=pod, nodes=nodes)

    def _verb_url(self, verb: str) -> str:
        return f"{SCHEME}{self._target}/{METHODS[verb]}"

    async def _call(self, verb: str, request: Message, response: type[R]) -> R:
        url, deadline = self._verb_url(verb), asyncio.get_running_loop().time() + self._timeout
        try:
            async with asyncio.timeout_at(deadline):
                channel = await self._connected_channel()
        except TimeoutError:
            raise NotSent(verb, url, f": no connection within {self._timeout:g} s") from None
        if channel is None:
            raise NotSent(verb, url, ": no connection")
        method = f"/pinnace.v1.Extender/{METHODS[verb]}"
        call: Any = channel.unary_unary(method, type(request).SerializeToString, response.FromString)
        try:
            answer: R | None = await call(request, timeout=max(deadline - asyncio.get_running_loop().time(), 0.001))
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise ResponseLost(verb, url, f": no response within {self._timeout:g} s") from None
            kind = ResponseLost if error.code() in _OPEN else ExtenderError
            raise kind(verb, url, f", code {error.code().name}: {error.details()}") from None
        if answer is None:  # gRPC returns None if it cannot parse the response
            raise ExtenderError(verb, url, f": the response is not a valid {response.DESCRIPTOR.name}")
        return answer

    async def _connected_channel(self) -> grpc.aio.Channel | None:
        """Return a connected channel, or None if the extender is unavailable.

        A call on an unconnected channel could be sent much later.
        """
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(self._target, options=_OPTIONS)
        while (state := self._channel.get_state(try_to_connect=True)) in _NOT_YET:
            await self._channel.wait_for_state_change(state)
        return self._channel if state is grpc.ChannelConnectivity.READY else None
