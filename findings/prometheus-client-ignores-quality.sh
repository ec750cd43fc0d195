#!/usr/bin/env bash
# expected:   The exposition format follows the quality values of the Accept header; q=0 excludes a format.
# happens:    choose_encoder takes OpenMetrics whenever the header names it, also with q=0.
# versions:   prometheus-client 0.26.0
# matters:    A scraper that prefers the text format, or cannot read OpenMetrics, gets OpenMetrics: counters have other
#             names, and the body ends with # EOF.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check prometheus-client==0.26.0
cd "$folder"
venv/bin/python - <<'END'
import sys

from prometheus_client.exposition import choose_encoder

seen = []
for accept in (
    "text/plain;version=0.0.4",
    "text/plain;version=0.0.4;q=0.9,application/openmetrics-text;version=1.0.0;q=0.1",
    "text/plain;version=0.0.4,application/openmetrics-text;version=1.0.0;q=0",
):
    content_type = choose_encoder(accept)[1]
    seen.append(content_type.partition(";")[0])
    print(f"{accept}\n    {content_type}")
sys.exit(seen != ["text/plain", "application/openmetrics-text", "application/openmetrics-text"])
END
