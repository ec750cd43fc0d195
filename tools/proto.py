"""Generates the Python modules under pinnace/api from proto/, or (--check) says which of them are out of date."""

import argparse
import filecmp
import sys
import tempfile
from importlib import resources
from pathlib import Path

import google.rpc
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "proto"


def generate(out: Path) -> None:
    files = sorted(str(path) for path in SOURCES.rglob("*.proto"))
    googleapis = Path(next(iter(google.rpc.__path__))).parent.parent
    well_known = resources.files("grpc_tools") / "_proto"
    arguments = [
        "protoc",
        f"-I{SOURCES}",
        f"-I{googleapis}",
        f"-I{well_known}",
        f"--python_out={out}",
        f"--pyi_out={out}",
        *files,
    ]
    if code := protoc.main(arguments):
        sys.exit(f"protoc failed with exit code {code}")


def stale() -> list[str]:
    """Names of the generated files that differ from what proto/ gives now."""
    with tempfile.TemporaryDirectory() as directory:
        generate(Path(directory))
        fresh = {path.name: path for path in (Path(directory) / "pinnace/api").iterdir()}
        committed = {path.name: path for path in (ROOT / "pinnace/api").glob("*_pb2.py*")}
        return sorted(
            name
            for name in fresh.keys() | committed.keys()
            if name not in fresh or name not in committed or not filecmp.cmp(fresh[name], committed[name], shallow=False)
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 when something is out of date")
    if not parser.parse_args().check:
        generate(ROOT)
    elif names := stale():
        sys.exit("out of date: " + ", ".join(names) + "\nhint: run `make proto` and commit the result")


if __name__ == "__main__":
    main()
