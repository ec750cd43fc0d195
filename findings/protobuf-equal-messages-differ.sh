#!/usr/bin/env bash
# expected:   Two messages are equal if and only if their deterministic serializations are equal, and NaN is not equal to
#             itself.
# happens:    Messages with the same unknown fields in another order are equal, and their deterministic bytes differ.
#             Messages with NaN are equal.
# versions:   protobuf 7.36.2 for Python (upb)
# matters:    A digest of a message that a newer program has written can change although the message has not: an object is
#             written again, or a hash names another object.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check protobuf==7.36.2
cd "$folder"
venv/bin/python - <<'END'
import sys

from google.protobuf.empty_pb2 import Empty
from google.protobuf.internal import api_implementation
from google.protobuf.struct_pb2 import Value

one, other = Empty.FromString(b"\x08\x01\x10\x02"), Empty.FromString(b"\x10\x02\x08\x01")
data = [message.SerializeToString(deterministic=True) for message in (one, other)]
nan = Value(number_value=float("nan")) == Value(number_value=float("nan"))
print(f"implementation: {api_implementation.Type()}")
print(f"the same unknown fields in another order: equal {one == other}, bytes {data[0].hex()} and {data[1].hex()}")
print(f"messages with NaN: equal {nan}")
sys.exit((one == other, data[0] == data[1], nan) != (True, False, True))
END
