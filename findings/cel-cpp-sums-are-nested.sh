#!/usr/bin/env bash
# expected:   A sum of many terms is one flat expression: CEL requires 32 levels of nesting, and `a + a + a` needs one.
# happens:    Each `+` in a row is a level: 32 terms compile, 33 are refused. A row of 200 `&&` compiles, because its tree is balanced.
# versions:   cel-expr-python 0.1.3 (bindings of cel-cpp), Python 3.11 to 3.13
# matters:    Kubernetes' cel-go allows 250 levels. A rule that a Kubernetes API server accepts, such as a message of 40 joined parts,
#             is refused here, and the bindings have no option to change the limit.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check cel-expr-python==0.1.3
cd "$folder"
venv/bin/python - <<'END'
import sys

from cel_expr_python import cel

environment = cel.NewEnv(variables={"n": cel.Type.INT})


def compiles(expression):
    try:
        environment.compile(expression)
    except RuntimeError:
        return False
    return True


results = {
    "a sum of 32": compiles(" + ".join(["n"] * 32)),
    "a sum of 33": compiles(" + ".join(["n"] * 33)),
    "a conjunction of 200": compiles(" && ".join(["n > 0"] * 200)),
}
print(*(f"{name} terms: {'compiles' if result else 'is refused'}" for name, result in results.items()), sep="\n")
sys.exit(list(results.values()) != [True, False, True])
END
