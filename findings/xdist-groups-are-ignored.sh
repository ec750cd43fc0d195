#!/usr/bin/env bash
# expected: with `--dist loadgroup`, tests that have one `xdist_group` run in one worker, one after the other.
# happens:  with pytest 9.2.0 they are dealt to all workers and run at the same time. With pytest 8.4.2 they run in one worker. Nothing warns.
# versions: pytest-xdist 3.8.0; pytest 9.2.0 and 8.4.2.
# matters:  groups are how tests share what exists once on a machine, such as ports or addresses. They then fail for reasons that a test alone does not show.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
cat > "$folder/test_group.py" <<'PY'
import os
import time

import pytest

pytestmark = pytest.mark.xdist_group("machine")


@pytest.mark.parametrize("number", range(4))
def test_member(number, record_property):
    time.sleep(0.3)
    with open(os.environ["SEEN"], "a") as seen:
        print(os.environ["PYTEST_XDIST_WORKER"], file=seen)
PY
count() { # the number of workers that ran members of the group, with this pytest
    "$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pytest==$1" pytest-xdist==3.8.0
    rm -f "$folder/seen"
    (cd "$folder" && SEEN="$folder/seen" venv/bin/python -m pytest -q -n 2 --dist loadgroup -p no:cacheprovider test_group.py >/dev/null)
    sort -u "$folder/seen" | wc -l
}
old=$(count 8.4.2)
new=$(count 9.2.0)
echo "workers that ran one group: $old with pytest 8.4.2, $new with pytest 9.2.0"
[ "$old" = 1 ] && [ "$new" = 2 ]
