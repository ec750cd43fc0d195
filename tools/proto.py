"""Generates the services of tools/kinds.py in proto/, and from proto/ the files of pinnace/api: the Python modules, and in
descriptions.json the comments of the fields of objects; or (--check) names the files that are out of date."""

import argparse
import filecmp
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path

import google.rpc
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc
from kinds import KINDS

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "proto"
SERVICES = SOURCES / "pinnace" / "api"
OUT = Path("pinnace/api")
DESCRIPTIONS = "descriptions.json"
METADATA = ".pinnace.meta.v1.ObjectMeta"
"""The type of a field that only objects have."""
_MESSAGE, _FIELD = FileDescriptorProto.MESSAGE_TYPE_FIELD_NUMBER, DescriptorProto.FIELD_FIELD_NUMBER


def generate(out: Path) -> None:
    files = sorted(str(path) for path in SOURCES.rglob("*.proto"))
    googleapis = Path(next(iter(google.rpc.__path__))).parent.parent
    well_known = resources.files("grpc_tools") / "_proto"
    with tempfile.NamedTemporaryFile() as described:
        arguments = [
            "protoc",
            f"-I{SOURCES}",
            f"-I{googleapis}",
            f"-I{well_known}",
            f"--python_out={out}",
            f"--pyi_out={out}",
            f"--descriptor_set_out={described.name}",
            "--include_source_info",
            *files,
        ]
        if code := protoc.main(arguments):
            sys.exit(f"protoc failed with exit code {code}")
        result = descriptions(FileDescriptorSet.FromString(Path(described.name).read_bytes()))
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(result[name], ensure_ascii=False)}" for name in sorted(result))
    (out / OUT / DESCRIPTIONS).write_text(f"{{\n{lines}\n}}\n")


def descriptions(files: FileDescriptorSet) -> Mapping[str, Mapping[str, str]]:
    """By message and field, of all that objects are made of: the comments as one line. Field "" is the message itself."""
    messages = {f".{file.package}.{item.name}": item for file in files.file for item in file.message_type}
    reached: set[str] = set()
    ahead = [name for name, message in messages.items() if any(field.type_name == METADATA for field in message.field)]
    while ahead:
        name = ahead.pop()
        if name in messages and name not in reached:
            reached.add(name)
            nested = (field for item in messages[name].nested_type for field in item.field)
            ahead += [field.type_name for field in (*messages[name].field, *nested)]
    result: dict[str, dict[str, str]] = {}
    for file in files.file:
        for message, field, text in comments(file):
            if f".{message}" in reached:
                result.setdefault(message, {})[field] = text
    return result


def comments(file: FileDescriptorProto) -> Iterator[tuple[str, str, str]]:
    """Message, field, and what is said of it; field "" is the message itself."""
    for location in file.source_code_info.location:
        if not (text := " ".join(location.leading_comments.split())):
            continue
        match list(location.path):
            case [kind, number] if kind == _MESSAGE:
                yield f"{file.package}.{file.message_type[number].name}", "", text
            case [kind, number, part, index] if (kind, part) == (_MESSAGE, _FIELD):
                message = file.message_type[number]
                yield f"{file.package}.{message.name}", message.field[index].json_name, text


def write_services() -> None:
    for kind in KINDS:
        (SERVICES / kind.file).write_text(kind.source())


def stale() -> list[str]:
    """Return the names of the generated files that differ from their sources."""
    if services := [kind.file for kind in KINDS if not _has_text(SERVICES / kind.file, kind.source())]:
        return services
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / OUT).mkdir(parents=True)
        generate(Path(directory))
        fresh = {path.name: path for path in (Path(directory) / OUT).iterdir()}
        committed = {path.name: path for path in (ROOT / OUT).iterdir() if path.match("*_pb2.py*") or path.name == DESCRIPTIONS}
        return sorted(
            name
            for name in fresh.keys() | committed.keys()
            if name not in fresh or name not in committed or not filecmp.cmp(fresh[name], committed[name], shallow=False)
        )


def _has_text(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text() == text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 when something is out of date")
    if not parser.parse_args().check:
        write_services()
        generate(ROOT)
    elif names := stale():
        sys.exit("out of date: " + ", ".join(names) + "\nhint: run `make proto` and commit the result")


if __name__ == "__main__":
    main()
