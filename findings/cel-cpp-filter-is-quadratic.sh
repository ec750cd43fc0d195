#!/usr/bin/env bash
# expected:   The macro `filter` of CEL takes time in proportion to the length of the list, as `exists` does.
# happens:    Each element that passes is appended to a copy of the list before it: twice as many elements need four times as long.
# versions:   cel-expr-python 0.1.3 (bindings of cel-cpp), Python 3.11 to 3.13
# matters:    A validation rule of a custom resource, `self.items.filter(x, x.enabled).size() > 0`, costs more than the linear
#             estimate for which Kubernetes' limits were made. Whoever bounds the cost of rules has to price `filter` by the square.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check cel-expr-python==0.1.3
cd "$folder"
venv/bin/python - <<'END'
import sys
import time

from cel_expr_python import cel

environment = cel.NewEnv(variables={"self": cel.Type.DYN})


def seconds(expression, size):
    program = environment.compile(expression)
    data = {"self": list(range(size))}
    best = []
    for _ in range(5):
        began = time.process_time()
        program.eval(data=data)
        best.append(time.process_time() - began)
    return min(best)


ratios = {}
for name, expression in (("exists", "self.exists(x, x < 0)"), ("filter", "self.filter(x, x >= 0).size() > 0")):
    small, large = seconds(expression, 500), seconds(expression, 2000)
    ratios[name] = large / small
    print(f"{name}: {small * 1000:.2f} ms for 500 elements, {large * 1000:.2f} ms for 2,000: {ratios[name]:.1f} times as long")
sys.exit(not (ratios["exists"] < 8 < ratios["filter"]))
END
