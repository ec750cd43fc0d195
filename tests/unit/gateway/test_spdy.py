"""SPDY frames of forwarded ports."""

import zlib
from collections.abc import Iterator

import pytest

from pinnace.gateway.spdy import DATA, DICTIONARY, FIN, MAX_FRAME, PING, SYN_STREAM, SpdyDecoder, SpdyEncoder, SpdyError


class Client:
    """Encodes frames as kubectl does."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    def syn(self, stream: int, **headers: str) -> bytes:
        text = len(headers).to_bytes(4, "big")
        for pair in headers.items():
            text += b"".join(len(item).to_bytes(4, "big") + item.encode() for item in pair)
        block = self._deflate.compress(text) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        payload = stream.to_bytes(4, "big") + bytes(6) + block
        return b"\x80\x03\x00\x01\x00" + len(payload).to_bytes(3, "big") + payload


def split(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_frames_are_decoded_from_any_split(size: int) -> None:
    client, decoder = Client(), SpdyDecoder()
    sent = client.syn(1, streamtype="error", port="80", requestid="0") + client.syn(3, streamtype="data")
    sent += b"\x80\x03\x00\x06\x00\x00\x00\x04\x00\x00\x00\x09" + SpdyEncoder.encode_data(3, b"hello", FIN)
    frames = [frame for part in split(sent, size) for frame in decoder.frames(part)]
    assert [(item.kind, item.stream, item.flags) for item in frames] == [
        (SYN_STREAM, 1, 0), (SYN_STREAM, 3, 0), (PING, 0, 0), (DATA, 3, FIN),
    ]  # fmt: skip
    assert decoder.headers(frames[0].payload) == {"streamtype": "error", "port": "80", "requestid": "0"}
    assert decoder.headers(frames[1].payload) == {"streamtype": "data"}
    assert (frames[2].payload, frames[3].payload) == (b"\x00\x00\x00\x09", b"hello")


def test_frames_of_other_types_are_skipped() -> None:
    settings = b"\x80\x03\x00\x04\x00\x00\x00\x04" + bytes(4)
    assert [frame.payload for frame in SpdyDecoder().frames(settings + SpdyEncoder.encode_data(5, b"x"))] == [b"x"]


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00\x00\x01\x00" + (MAX_FRAME + 1).to_bytes(3, "big"),
        b"\x80\x02\x00\x01\x00\x00\x00\x00",
        b"\x80\x03\x00\x01\x00\x00\x00\x04" + bytes(4),
    ],
    ids=("too-large", "version", "cut-off"),
)
def test_malformed_frame_is_refused(data: bytes) -> None:
    with pytest.raises(SpdyError):
        list(SpdyDecoder().frames(data))


@pytest.mark.parametrize(
    "block", [b"garbage", zlib.compressobj(zdict=DICTIONARY).compress(b"") + b"\xff" * 9], ids=("garbage", "broken")
)
def test_headers_that_cannot_be_decompressed_are_refused(block: bytes) -> None:
    with pytest.raises(SpdyError):
        SpdyDecoder().headers(block)


def test_headers_are_bounded() -> None:
    frame = Client().syn(1, bomb="x" * 1_000_000)
    decoder = SpdyDecoder()
    (result,) = decoder.frames(frame)
    with pytest.raises(SpdyError, match="headers too large"):
        decoder.headers(result.payload)


def test_reply_has_no_headers() -> None:
    reply = SpdyEncoder().encode_reply(7)
    assert reply[:4] == b"\x80\x03\x00\x02" and int.from_bytes(reply[8:12], "big") == 7
    assert zlib.decompressobj(zdict=DICTIONARY).decompress(reply[12:]) == bytes(4)
