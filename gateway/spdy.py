"""SPDY/3.1 frames, which kubectl sends over a WebSocket to forward ports.

Implements only SYN_STREAM, SYN_REPLY, RST_STREAM, PING and data frames, without flow control.

Source: https://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1/
"""

import zlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

SYN_STREAM, SYN_REPLY, RST_STREAM, PING = 1, 2, 3, 6
DATA = 0
"""The type of data frames, which is not transmitted."""
FIN = 1
"""The flag of the last frame in one direction of a stream."""
REFUSED_STREAM, CANCEL = 3, 5
MAX_FRAME = 1 << 20
"""The maximum size of a frame in bytes. kubectl sends at most 32 KiB."""
MAX_HEADERS = 16 << 10
"""The maximum size of the decompressed headers of a stream in bytes."""
_VERSION = 0x8003
_WORDS = (
    "options,head,post,put,delete,trace,accept,accept-charset,accept-encoding,accept-language,accept-ranges,age,allow,"
    "authorization,cache-control,connection,content-base,content-encoding,content-language,content-length,content-location,"
    "content-md5,content-range,content-type,date,etag,expect,expires,from,host,if-match,if-modified-since,if-none-match,"
    "if-range,if-unmodified-since,last-modified,location,max-forwards,pragma,proxy-authenticate,proxy-authorization,range,"
    "referer,retry-after,server,te,trailer,transfer-encoding,upgrade,user-agent,vary,via,warning,www-authenticate,method,"
    "get,status,200 OK,version,HTTP/1.1,url,public,set-cookie,keep-alive,origin"
)
_REST = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Authoritative Info"
    "rmation204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not Found500 Internal Serv"
    "er Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue"
    ", Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,"
    "text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY = b"".join(len(word).to_bytes(4, "big") + word.encode() for word in _WORDS.split(",")) + _REST.encode()
"""The compression dictionary of headers, as specified."""


class SpdyError(ValueError):
    """The bytes are not valid SPDY frames, or exceed a limit."""


class Frame(NamedTuple):
    kind: int
    stream: int
    """The stream, or 0 for a PING."""
    flags: int
    payload: bytes
    """The data, the ID of a PING, or the header block of a SYN_STREAM."""


class SpdyDecoder:
    """Decodes frames from a byte stream."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)

    def frames(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that `data` completes. Frames of other types are skipped. Raises SpdyError."""
        self._buffer += data
        while len(self._buffer) >= 8:
            flags, length = self._buffer[4], int.from_bytes(self._buffer[5:8], "big")
            if length > MAX_FRAME:
                raise SpdyError(f"frame too large: {length} bytes, at most {MAX_FRAME} are allowed")
            if len(self._buffer) < 8 + length:
                return
            head, payload = bytes(self._buffer[:4]), bytes(self._buffer[8 : 8 + length])
            del self._buffer[: 8 + length]
            if not head[0] & 0x80:
                yield Frame(DATA, int.from_bytes(head, "big"), flags, payload)
            elif (frame := _decode_control_frame(head, flags, payload)) is not None:
                yield frame

    def headers(self, block: bytes) -> Mapping[str, str]:
        """Decode the headers of a SYN_STREAM. All header blocks must be decoded in order. Raises SpdyError."""
        try:
            text = self._inflate.decompress(block, MAX_HEADERS)
        except zlib.error as error:
            raise SpdyError(f"unable to decompress headers: {error}") from None
        if self._inflate.unconsumed_tail:
            raise SpdyError(f"headers too large: at most {MAX_HEADERS} bytes are allowed")
        parts = _decode_strings(text)
        return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in zip(parts, parts, strict=False)}


def _decode_control_frame(head: bytes, flags: int, payload: bytes) -> Frame | None:
    if int.from_bytes(head[:2], "big") != _VERSION:
        raise SpdyError("the version of a control frame is not SPDY/3")
    kind = int.from_bytes(head[2:], "big")
    least = {SYN_STREAM: 10, RST_STREAM: 8, PING: 4}.get(kind)
    if least is None:
        return None
    if len(payload) < least:
        raise SpdyError("truncated control frame")
    if kind == PING:
        return Frame(PING, 0, flags, payload)
    stream = int.from_bytes(payload[:4], "big") & 0x7FFFFFFF
    return Frame(kind, stream, flags, payload[10:] if kind == SYN_STREAM else payload[4:])


def _decode_strings(text: bytes) -> Iterator[bytes]:
    """Yield names and values alternately. The block starts with their number."""
    at = 4
    while at + 4 <= len(text):
        end = at + 4 + int.from_bytes(text[at : at + 4], "big")
        if end > len(text):
            raise SpdyError("truncated headers")
        yield text[at + 4 : end]
        at = end


class SpdyEncoder:
    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    def encode_reply(self, stream: int) -> bytes:
        """Accept a stream without headers."""
        block = self._deflate.compress(bytes(4)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        return _control_frame(SYN_REPLY, stream.to_bytes(4, "big") + block)

    @staticmethod
    def encode_reset(stream: int, status: int) -> bytes:
        return _control_frame(RST_STREAM, stream.to_bytes(4, "big") + status.to_bytes(4, "big"))

    @staticmethod
    def encode_pong(payload: bytes) -> bytes:
        return _control_frame(PING, payload)

    @staticmethod
    def encode_data(stream: int, data: bytes, flags: int = 0) -> bytes:
        return b"".join((stream.to_bytes(4, "big"), bytes((flags,)), len(data).to_bytes(3, "big"), data))


def _control_frame(kind: int, payload: bytes) -> bytes:
    head = _VERSION.to_bytes(2, "big") + kind.to_bytes(2, "big") + b"\0" + len(payload).to_bytes(3, "big")
    return head + payload
