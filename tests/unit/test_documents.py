"""Documents refer to existing files, modules and sections, and the index lists each page."""

import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALL = [path.relative_to(ROOT) for path in ROOT.glob("[!.]*/**/*")] + [path.relative_to(ROOT) for path in ROOT.glob("[!.]*")]
COMPONENTS = {path.name for path in (ROOT / "pinnace").iterdir() if path.is_symlink()}
PATHS = {f"/{path}" for path in ALL} | {f"/pinnace/{path}" for path in ALL if path.parts[0] in COMPONENTS}
PACKAGES = {path[1:].removesuffix("/__init__.py") for path in PATHS if path.endswith("/__init__.py")}
PARTS = "apiserver|controllers|kubelet|pinnace|scheduler"
NO_PLACES = r"pinnace\.io|pinnace(\.admission)?\.v1\.|apiserver\.crt|kubelet\.(pinnace|sync)|controllers/4711|FILE.py"
NO_PLACES += r"|scheduler\.(schedule|bind)"  # spans, like kubelet.sync
WRITTEN = {name for path in ROOT.glob("labs/*.md") for name in re.findall(r"^```\w+ file=(\S+)$", path.read_text(), re.M)}
"""Files that the reader of a lab creates."""


@pytest.mark.parametrize("document", [path for path in ALL if path.suffix == ".md"], ids=str)
def test_references_in_documents_exist(document: Path) -> None:
    text = (ROOT / document).read_text()
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text)
    assert not [link for link in links if not (ROOT / document.parent / link).exists()]
    code = " ".join(item for item in re.findall(r"`([^`\n]+)`", text) if not re.search(NO_PLACES, item))
    paths = re.findall(rf"(?<![\w./-])(?:{PARTS}|tests|bench|docs|examples|proto|tools)/[\w./-]*\w(?![\w{{*])", code)
    assert not [path for path in paths if f"/{path}" not in PATHS]
    files = re.findall(r"(?<![\w./<-])\w[\w/-]*\.(?:py|proto)\b", code)
    assert not [file for file in files if file not in WRITTEN and not any(path.endswith(f"/{file}") for path in PATHS)]
    modules = re.findall(rf"(?<![\w./-])(?:{PARTS}|tests)(?:\.\w+)+(?![\w.])", code)
    places = [f"/{module.replace('.', '/')}" for module in modules]
    assert not [place for place in places if not PATHS & {place, f"{place}.py", f"{place.rpartition('/')[0]}.py"}]


@pytest.mark.parametrize("document", [path for path in ALL if path.suffix == ".md"], ids=str)
def test_section_links_resolve(document: Path) -> None:
    links = re.findall(r"\]\(([^)#:\s]*)#([^)\s]+)\)", (ROOT / document).read_text())
    targets = [(ROOT / document.parent / page if page else ROOT / document, section) for page, section in links]
    assert not [(page, section) for page, section in targets if page.suffix == ".md" and section not in sections(page)]


def sections(document: Path) -> set[str]:
    """The anchors of the headings, as GitHub generates them."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "]", title)).lower().replace(" ", "-") for title in titles}


def test_assumptions_name_existing_tests_and_functions() -> None:
    text = (ROOT / "docs/assumptions.md").read_text()
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert not [name for name in re.findall(r"`(test_\w+)`", text) if f"def {name}(" not in tests]
    for name, path in re.findall(r"`(\w+)` of `([\w/]+\.py)`", text):
        assert re.search(rf"(def|class) {name}\b", (ROOT / path).read_text()), f"{path} has no {name}"


@pytest.mark.parametrize("script", sorted((ROOT / "findings").glob("*.sh")), ids=lambda path: path.stem)
def test_finding_has_its_form(script: Path) -> None:
    """It says what one expects, pins what it installs, and does not use pinnace."""
    text = script.read_text()
    assert re.findall(r"^# (\w+): ", text, re.MULTILINE) == ["expected", "happens", "versions", "matters"]
    assert "set -euo pipefail" in text and "mktemp -d" in text and os.access(script, os.X_OK)
    (packages,) = re.findall(r"install --quiet .*check (.*)$", text, re.MULTILINE)
    assert all("==" in package for package in packages.split())
    assert not re.search(r"pinnace|/work|/home", text)


def test_tables_list_every_package_and_page() -> None:
    listed = re.findall(r"^\| `([\w.]+)` \|", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE)
    assert set(listed) == {
        p.replace("/", ".") for p in PACKAGES if re.fullmatch(r"pinnace/(verification/)?(?!verification$)\w+", p)
    }
    index = re.findall(r"\]\(([\w/-]+\.md)", (ROOT / "docs/README.md").read_text())
    pages = {str(path.relative_to("docs")) for path in ALL if path.match("docs/*.md") or path.match("docs/design/*.md")}
    assert pages - {"README.md"} <= set(index)
