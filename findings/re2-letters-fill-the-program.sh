#!/usr/bin/env bash
# expected:   The program of a pattern grows with its text: a host name of letters costs about the same as one of `[a-z]`.
# happens:    RE2 matches UTF-8 bytes, and repeats copy their operand: `\p{L}{1,63}` has 300 times as many instructions as
#             `[a-z]{1,63}`, and takes tens of milliseconds to compile.
# versions:   google-re2 1.1.20251105, Python 3.11 to 3.13
# matters:    Published definitions of custom resources have such patterns for host names. Go's regexp matches characters, not bytes,
#             and compiles them at once. Whoever bounds patterns by their instructions must not refuse these.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check google-re2==1.1.20251105
cd "$folder"
venv/bin/python - <<'END'
import sys
import time

import re2

sizes = {}
for pattern in ("^[a-z]{1,63}$", r"^\p{L}{1,63}$"):
    began = time.process_time()
    sizes[pattern] = re2.compile(pattern).programsize
    print(f"{pattern}: {sizes[pattern]:,} instructions, {(time.process_time() - began) * 1000:.1f} ms")
small, large = sizes.values()
sys.exit(not large > 100 * small)
END
