"""Which files are read."""

from pathlib import Path

import pytest

from pinnace.api.documents import MAX_SIZE
from pinnace.api.manifest import ManifestError
from pinnace.cli.objects.manifests import read
from pinnace.cli.outcomes import Failure


def namespace(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {path.stem}}}}}")


def test_a_directory_and_those_in_it_by_their_names(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yml", "0/c.json", "b/d.yaml", "0/e.txt"):
        namespace(tmp_path / name)
    found = [
        [each.obj.metadata.name for each in read([str(tmp_path)], recursive=deep, validate="strict")] for deep in (False, True)
    ]
    assert found == [["a", "b"], ["c", "a", "d", "b"]]


def test_a_link_to_nowhere_is_no_manifest_that_is_left_out(tmp_path: Path) -> None:
    namespace(tmp_path / "a.yaml")
    (tmp_path / "b.yaml").symlink_to(tmp_path / "gone.yaml")
    with pytest.raises(Failure, match=r"b\.yaml: no such file or directory"):
        read([str(tmp_path)], recursive=False, validate="strict")


def test_endless_input_is_not_read_completely() -> None:
    with pytest.raises(ManifestError, match=rf"/dev/zero:1: exceeds the maximum size of {MAX_SIZE:,} bytes"):
        read(["/dev/zero"])


def test_all_files_with_mistakes_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xff\xfe")
    (tmp_path / "b.yaml").write_text("kind: Nothing")
    namespace(tmp_path / "c.yaml")
    with pytest.raises(ManifestError) as caught:
        read([str(tmp_path)])
    assert [problem.partition(".yaml:1: ")[0] for problem in caught.value.problems] == [f"{tmp_path}/a", f"{tmp_path}/b"]


def test_files_are_named_with_commas_and_with_quoted_globs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.yaml", "b.yaml", "c,d.yaml"):
        (tmp_path / name).write_text(f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name[0]}}}\n")

    def names(*filenames: str) -> list[str]:
        return [each.obj.metadata.name for each in read(filenames)]

    assert names("a.yaml,b.yaml") == ["a", "b"]
    assert names("c,d.yaml") == ["c"]
    assert names("[ab].yaml") == names(str(tmp_path / "[ab].yaml")) == ["a", "b"]
    with pytest.raises(Failure, match=r"no\*.yaml"):
        names("no*.yaml")
