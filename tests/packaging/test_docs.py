"""What the documentation says is true: its code runs, its links lead somewhere, its commands exist."""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib
import io
import pkgutil
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.cli.command import in_process
from unskew import core, wire

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = {".git", ".venv", "__pycache__", "dist", "build", "demo-report", "spark-warehouse", "metastore_db"}
# A python block, and the text block right after it, which is what it prints.
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def own_files() -> list[Path]:
    """Every file of the project: git's list where git can tell, else all but what tools leave behind."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    if (ROOT / ".git").exists() and shutil.which("git"):
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
        if listed:
            return [ROOT / line for line in listed.splitlines() if (ROOT / line).is_file()]
    walked = (path for path in ROOT.rglob("*") if not SKIPPED & set(path.relative_to(ROOT).parts))
    return [path for path in walked if path.is_file()]


def pages() -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for path in own_files() if path.suffix == ".md")


def test_the_code_in_the_readme_runs_and_prints_what_is_shown() -> None:
    """Each python block runs after the ones before it; the text block that follows one is its output."""
    blocks = BLOCK.findall((ROOT / "README.md").read_text())
    assert any(shown for _, shown in blocks)
    names: dict[str, object] = {}
    for code, shown in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "README.md", "exec"), names)
        assert printed.getvalue() == shown


@pytest.mark.parametrize("page", pages())
def test_relative_links_lead_to_a_file(page: str) -> None:
    """A link that is no address names a file or folder of this project."""
    text = FENCED.sub("", (ROOT / page).read_text())
    targets = [target.partition("#")[0] for target in LINK.findall(text) if "://" not in target]
    missing = [target for target in targets if target and not (ROOT / page).parent.joinpath(target).exists()]
    assert missing == []


def test_every_make_target_that_is_named_exists() -> None:
    """`make x` in any page is a target of the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for page in pages() for name in re.findall(r"`make ([a-z-]+)", (ROOT / page).read_text())}
    assert {"demo", "test", "check", "bench"} <= named
    assert named - targets == set()


def test_every_decision_is_in_the_index() -> None:
    """The table of docs/decisions/README.md has one row for each page, and each page begins with its number."""
    folder = ROOT / "docs" / "decisions"
    listed = re.findall(r"^\| \[(\d{4})\]\((\S+)\) \|", (folder / "README.md").read_text(), re.MULTILINE)
    found = sorted(folder.glob("[0-9]*.md"))
    assert listed == [(page.name[:4], page.name) for page in found]
    assert [page.name for page in found if not page.read_text().startswith(f"# {page.name[:4]}")] == []


def test_the_examples_in_docstrings_are_true() -> None:
    """Every `>>>` in the docstrings of the portions gives what it shows."""
    tried = 0
    for portion in (core, wire):
        for module in pkgutil.walk_packages(portion.__path__, portion.__name__ + "."):
            result = doctest.testmod(importlib.import_module(module.name))
            assert result.failed == 0, module.name
            tried += result.attempted
        tried += doctest.testmod(portion, raise_on_error=True).attempted
    assert tried > 0


BINARY = {".pb", ".png", ".parquet"}
# Each pattern is written so that it does not match its own line.
FORBIDDEN = {
    "a package registry": r"pypi[.]org|pythonhosted[.]org|registry[.]npmjs|repo1?[.]maven|crates[.]io",
    "an index option": r"--(?:extra-)?index-url|--find-links|--trusted-host[ =]",
    "a path of one machine": r"(?<![\w.}])/(?:root|home/\w+|Users/\w+|work/(?:main|shared))/",
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_names_one_machine_or_registry(what: str) -> None:
    """Addresses of registries and paths of one machine belong to the user's own configuration."""
    pattern = re.compile(FORBIDDEN[what])
    found = []
    for file in own_files():
        if file == Path(__file__) or file.suffix in BINARY or b"\0" in (content := file.read_bytes())[:8000]:
            continue
        for number, line in enumerate(content.decode("utf-8").splitlines(), 1):
            if pattern.search(line):
                found.append(f"{file.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert found == []


SHOWN = re.compile(r"^```([a-z]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:\$ )?(?:\.venv/bin/)?unskew ([a-z]+)(?: ([a-z]+))?([^\n#|&]*)", re.MULTILINE)


def shown(*kinds: str) -> list[tuple[str, str, str]]:
    """Blocks of these kinds, with their page."""
    found = [(page, kind, text) for page in pages() for kind, text in SHOWN.findall((ROOT / page).read_text())]
    return [one for one in found if one[1] in kinds]


def test_python_that_is_shown_can_be_read_and_imports_what_there_is() -> None:
    """In diffs too, of what is added: each name of ours in an import is there."""
    tried = 0
    for page, kind, text in shown("python", "diff"):
        lines = [line[2:] if line[:1] in "+ " else "" for line in text.splitlines()] if kind == "diff" else [text]
        with contextlib.suppress(SyntaxError) if kind == "diff" else contextlib.nullcontext():
            # Of a diff only what is whole by itself is code: dots stand for the rest of a function.
            for node in ast.walk(ast.parse("\n".join(lines), page)):
                if isinstance(node, ast.ImportFrom) and str(node.module).startswith("unskew"):
                    module = importlib.import_module(str(node.module))
                    assert [name.name for name in node.names if not hasattr(module, name.name)] == [], page
                    tried += 1
    assert tried > 5


def test_yaml_and_shell_that_are_shown_can_be_read() -> None:
    """YAML as YAML, and what a shell is given by a shell that does not run it."""
    for page, _, text in shown("yaml"):
        assert all(document for document in yaml.safe_load_all(text)), page
    for page, _, text in shown("console", "bash", "sh"):
        script = re.sub(r"^\$ ", "", text, flags=re.MULTILINE)
        done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (page, done.stderr)


def test_every_command_of_ours_that_is_shown_exists_with_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    """`unskew x --y` in a block of any page."""
    tried = 0
    for page, _, text in shown("", "console", "bash", "sh"):
        for name, second, rest in COMMAND.findall(text.replace("\\\n", " ")):
            words = [name, *([second] if (name, second) == ("config", "check") else [])]
            helped = in_process(capsys, *words, "--help")
            assert helped.code == 0, (page, words)
            options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest))
            assert options <= set(re.findall(r"--[a-z-]+", helped.out)), (page, words)
            tried += 1
    assert tried > 10
