"""Maps that people keep by hand: what docstrings of packages and the documentation say of where things are."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALL = [path.relative_to(ROOT) for path in ROOT.glob("[!.]*/**/*")] + [path.relative_to(ROOT) for path in ROOT.glob("[!.]*")]
PATHS = {f"/{path}" for path in ALL}
INITS = {str(p.parent): ast.parse((ROOT / p).read_text()) for p in ALL if p.name == "__init__.py"}
PACKAGES = {package: ast.get_docstring(init) or "" for package, init in INITS.items()}
GENERATED = ("_pb2", "_pb2_grpc")
FEW = 8
PARTS = "apiserver|controllers|kubelet|pinnace|scheduler"
NO_PLACES = r"pinnace\.io|pinnace(\.admission)?\.v1\.|apiserver\.crt|kubelet\.(pinnace|sync)|controllers/4711|FILE.py"
NO_PLACES += r"|scheduler\.(schedule|bind)"  # spans, as kubelet.sync


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_lists_all_its_modules_or_none_if_they_are_few(package: str) -> None:
    text = PACKAGES[package]
    modules = {p.stem for p in ALL if str(p.parent) == package and p.suffix == ".py" and not p.stem.startswith(("__", "test_"))}
    modules = {each for each in modules if not each.endswith(GENERATED)}
    there = modules | {Path(each).name for each in PACKAGES if str(Path(each).parent) == package}
    assert set(re.findall(r"(?<![\w/])(\w+)\.py\b", text)) <= there
    listed = there.intersection(re.findall(r"^ *(\w+)\S*(?:, \S+)* {2,}\S", text, re.MULTILINE))
    if len(listed) > 1 or (len(modules) > FEW and not package.startswith("tests")):
        assert there <= set(re.findall(r"\w+", text)) | imported(package)


def imported(package: str) -> set[str]:
    """The modules of a package that are put together in its `__init__`: of plugins, of kinds."""
    imports = [node for node in ast.walk(INITS[package]) if isinstance(node, ast.ImportFrom)]
    dotted = package.replace("/", ".")
    names = [f"{each.module}.{alias.name}" for each in imports for alias in each.names]
    return {name.removeprefix(f"{dotted}.").split(".")[0] for name in names if name.startswith(f"{dotted}.")}


@pytest.mark.parametrize("document", [path for path in ALL if path.suffix == ".md"], ids=str)
def test_a_document_names_what_is_there(document: Path) -> None:
    text = (ROOT / document).read_text()
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text)
    assert not [link for link in links if not (ROOT / document.parent / link).exists()]
    code = " ".join(each for each in re.findall(r"`([^`\n]+)`", text) if not re.search(NO_PLACES, each))
    paths = re.findall(rf"(?<![\w./-])(?:{PARTS}|tests|bench|docs|examples|proto|tools)/[\w./-]*\w(?![\w{{*])", code)
    assert not [path for path in paths if f"/{path}" not in PATHS]
    files = re.findall(r"(?<![\w./<-])\w[\w/-]*\.(?:py|proto)\b", code)
    assert not [file for file in files if not any(path.endswith(f"/{file}") for path in PATHS)]
    modules = re.findall(rf"(?<![\w./-])(?:{PARTS}|tests)(?:\.\w+)+(?![\w.])", code)
    places = [f"/{module.replace('.', '/')}" for module in modules]
    assert not [place for place in places if not PATHS & {place, f"{place}.py", f"{place.rpartition('/')[0]}.py"}]


@pytest.mark.parametrize("document", [path for path in ALL if path.suffix == ".md"], ids=str)
def test_a_link_to_a_section_finds_it(document: Path) -> None:
    links = re.findall(r"\]\(([^)#:\s]*)#([^)\s]+)\)", (ROOT / document).read_text())
    targets = [(ROOT / document.parent / page if page else ROOT / document, section) for page, section in links]
    assert not [(page, section) for page, section in targets if page.suffix == ".md" and section not in sections(page)]


def sections(document: Path) -> set[str]:
    """Their anchors, as GitHub makes them of the headings."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "]", title)).lower().replace(" ", "-") for title in titles}


def test_tables_have_all() -> None:
    listed = re.findall(r"^\| `([\w.]+)` \|", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE)
    assert set(listed) == {p.replace("/", ".") for p in PACKAGES if re.fullmatch(rf"pinnace/\w+|(?!pinnace$)({PARTS})", p)}
    index = re.findall(r"\]\(([\w/-]+\.md)", (ROOT / "docs/README.md").read_text())
    pages = {str(path.relative_to("docs")) for path in ALL if path.match("docs/*.md") or path.match("docs/design/*.md")}
    assert pages - {"README.md"} <= set(index)
