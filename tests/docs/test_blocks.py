"""Every code block of README.md and docs/ is run.

A page is one case: its blocks, in order, share a working directory, and those in Python a namespace; a failure names
file and line. markdown-it reads the pages. (sybil and pytest-examples make a case of each block, which processes
that share the tests would tear apart; mktestdocs knows no YAML, and no lines.)

What a block is, it says where the reader sees it:

- Python is executed. After `# in a notebook` as its first line, it may await at the top level. Below a comment
  `<!-- source: … -->` it is a piece of the library, which `test_cores.py` compares.
- YAML is an experiment, or a study, and is loaded. With `title="own.yaml"` it is kept as that file;
  `title="in own.yaml"` is a fragment: its parts are added to that file, other fields are replaced, and the whole is
  loaded.
- JSON is parsed, and kept under its title, if it has one; Python with a title is kept as well.
- In bash and console blocks the CLI parses every `metagen …`. Those of `RUNS` are run as well, on few problems, unless
  they have placeholders in capitals, or work on a file or on runs of which the page makes none; or run a file of
  examples/, which `tests/examples` does, on a page that does nothing else with runs. What is parsed only is printed.
  Other commands must be known to `check`, which looks targets of make and extras of pip up.
- `text` is nothing to run. Every other language, and an indented block, is an error.
- `# needs a GPU` (or something else) as the first line marks what cannot run here. It is compiled, or parsed, and is
  reported as a skipped case of its own, with its place.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import os
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from markdown_it import MarkdownIt
from typer.testing import CliRunner

from metagen.cli import app
from metagen.runs.declare.source import read
from metagen.runs.declare.specs import SECTIONS
from metagen.runs.declare.study_schema import load

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: Commands of metagen that cost little on a few problems. Others are parsed only, as are those with an option that
#: measures for long (tests/generators/torch/test_speed.py runs it).
RUNS = {"run", "resume", "report", "show", "compare", "models", "ls", "doctor", "new", "explain"}
LONG = {"--speed"}
LIMIT = ["--limit", "2"]
#: What works on runs.
READS = re.compile(r"\bmetagen (?:resume|report|show|compare|ls)\b|\bRunDirectory\b|parquet|report\.html")
#: A name or a number that the reader fills in.
PLACEHOLDER = re.compile(r"^[A-Z][A-Z_]*$|…|\.\.\.")
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"])


@dataclass(frozen=True)
class Block:
    page: Path
    #: Of the first line of code.
    line: int
    language: str
    title: str
    text: str
    #: A piece of the library: nothing to run.
    quoted: bool = False

    @property
    def place(self) -> str:
        return f"{shown(self.page)}:{self.line}"

    @property
    def needs(self) -> str | None:
        """What is missing here, if the block says so."""
        found = re.match(r"\s*# (needs .+)", self.text)
        if found and found[1] == "needs bubblewrap" and shutil.which("bwrap"):
            return None
        return found[1] if found else None


def shown(page: Path) -> str:
    return str(page.relative_to(ROOT)) if page.is_relative_to(ROOT) else page.name


def blocks(page: Path) -> Iterator[Block]:
    above = ""
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        quoted, above = above.startswith("<!-- source:"), token.content
        if token.type not in ("fence", "code_block"):
            continue
        assert token.map is not None
        line = token.map[0] + 1
        assert token.type == "fence", (
            f"{shown(page)}:{line}: an indented block; fence it, and name its language"
        )
        language, _, rest = token.info.strip().partition(" ")
        title = re.search(r'title="([^"]+)"', rest)
        yield Block(page, line + 1, language, title[1] if title else "", token.content, quoted)


BLOCKS = [block for page in PAGES for block in blocks(page)]
MARKED = [block for block in BLOCKS if block.needs]


@dataclass
class Running:
    """A page that is being run in `place`."""

    place: Path
    #: Whether the page works on runs that it has made.
    reads: bool = True
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "page"})

    # -- Python and data -----------------------------------------------------------------------------

    def python(self, block: Block) -> None:
        if block.quoted:
            return
        self.keep(block)
        code = compiled(block)
        with self.importable():
            result = eval(code, self.names)
            if inspect.iscoroutine(result):
                asyncio.run(result)

    def json(self, block: Block) -> None:
        parsed(block)
        self.keep(block)

    def text(self, block: Block) -> None:
        pass

    def keep(self, block: Block) -> None:
        if block.title:
            file = self.place / block.title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")

    @contextmanager
    def importable(self) -> Iterator[None]:
        """The page's files are modules, for as long as the block runs."""
        sys.path.insert(0, str(self.place))
        before = set(sys.modules)
        try:
            yield
        finally:
            sys.path.remove(str(self.place))
            ours = [
                name
                for name in set(sys.modules) - before
                if str(getattr(sys.modules[name], "__file__", None) or "").startswith(f"{self.place}{os.sep}")
            ]
            for name in ours:
                del sys.modules[name]

    # -- experiments ---------------------------------------------------------------------------------

    def yaml(self, block: Block) -> None:
        name = block.title.removeprefix("in ")
        if "/" in name:  # in a directory of another program's files
            parsed(block)
            self.keep(block)
            return
        file = self.place / (name or "untitled.yaml")
        if name == block.title:
            file.write_text(block.text, encoding="utf-8")
        else:
            whole = read(file).data
            for key, value in parsed(block).items():
                whole[key] = whole.get(key, {}) | value if key in SECTIONS else value
            file.write_text(yaml.safe_dump(whole, sort_keys=False), encoding="utf-8")
        with self.importable():
            load(file)

    # -- commands ------------------------------------------------------------------------------------

    def bash(self, block: Block) -> None:
        for command in commands(block):
            variables = dict(word.split("=", 1) for word in command[: assignments(command)])
            words = command[len(variables) :]
            if words and check(words, self.place):
                self.metagen(words[1:], variables, block)

    console = bash

    def metagen(self, words: list[str], variables: dict[str, str], block: Block) -> None:
        name = words[0] if words else ""
        file = next((word for word in words if name == "run" and word.endswith(".yaml")), "runs")
        cheap = name in RUNS and not any(word in LONG or PLACEHOLDER.search(word) for word in words)
        needs = name in ("run", "resume", "report", "show", "compare")
        tried = file.startswith("examples/") and not self.reads
        if not cheap or tried or (needs and not (self.place / file).exists()):
            print(f"{block.place}: parsed only: metagen {shlex.join(words)}")
            return
        if name == "run" and "--limit" not in words:
            words = [*words, *LIMIT]
        if variables.get("PYTHONPATH") == ".":
            with self.importable():
                result = CliRunner().invoke(app, words)
        else:
            result = CliRunner().invoke(app, words)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, f"metagen {shlex.join(words)}\n{result.output}"


def compiled(block: Block) -> Any:
    # Under as many empty lines as there are lines above it, so that errors name the lines of the page.
    tree = ast.parse("\n" * (block.line - 1) + block.text, str(block.page))
    awaits = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if block.text.startswith("# in a notebook") else 0
    return compile(tree, str(block.page), "exec", flags=awaits, dont_inherit=True)


def parsed(block: Block) -> Any:
    if block.language == "yaml":
        return yaml.safe_load(block.text)
    if block.title.endswith(".jsonl"):
        return [json.loads(line) for line in block.text.splitlines()]
    return json.loads(block.text)


def commands(block: Block) -> Iterator[list[str]]:
    """The simple commands of a block: without comments, redirections and, in a console, what is answered."""
    lines = block.text.replace("\\\n", " ").splitlines()
    if block.language == "console":
        lines = [line[2:] for line in lines if line.startswith("$ ")]
        assert lines, "no line begins with '$ '; a console block shows commands and what they answer"
    for line in lines:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        for joins, words in groupby(lexer, lambda word: word in ("|", "||", "&&", ";", "&")):
            command = [word for word, before in pairs(words) if not {word, before} & {">", ">>", "<"}]
            if command and not joins:
                yield command


def pairs(words: Iterator[str]) -> Iterator[tuple[str, str]]:
    before = ""
    for word in words:
        yield word, before
        before = word


def assignments(command: list[str]) -> int:
    """How many words set variables, in front of a command."""
    return next((i for i, word in enumerate(command) if not re.match(r"[A-Za-z_]\w*=", word)), len(command))


def check(words: list[str], place: Path) -> bool:
    """Whether it is a command of metagen, which is parsed; whatever else it is must be known, and true."""
    name, rest = Path(words[0]).name, words[1:]
    match name, rest:
        case "metagen", _:
            parse(rest)
            return True
        case "make", _:
            wrong = {word for word in rest if "=" not in word} - TARGETS
            assert not wrong, f"the Makefile has no target {sorted(wrong)}"
        case (("python" | "python3"), ["-m", "pip", *options]):
            extras(options)
        case "pip", options:
            extras(options)
        case (("python" | "python3"), ["-m", module, *_]):
            path = ROOT / module.replace(".", "/")
            assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), (
                f"there is no {module}"
            )
        case (("python" | "python3"), [script, *_]):
            assert (place / script).exists() or (ROOT / script).exists(), f"there is no {script}"
        case "git", ["clone", *_]:
            pass
        case "cd", [_]:
            pass
        case _:
            raise AssertionError(
                f"unknown to this test: {shlex.join(words)}; mark the block, or extend `check`"
            )
    return False


def extras(options: list[str]) -> None:
    """Of this package, by its name or in its place; what others call theirs is theirs to know."""
    own = (found for option in options for found in re.findall(r"^(?:metageneration|\.)\[(.+?)\]", option))
    asked = {name.strip() for names in own for name in names.split(",")}
    assert asked <= EXTRAS, f"pyproject.toml has no extra {sorted(asked - EXTRAS)}"


@cache
def cli() -> Any:
    return typer.main.get_command(app)


def parse(words: list[str]) -> None:
    """As the CLI would, and no further."""
    group = cli()
    try:
        context = group.make_context("metagen", list(words))
        name, command, rest = group.resolve_command(context, [*context._protected_args, *context.args])
        command.make_context(name, rest, parent=context)
    except typer.Exit:  # --version and --help
        pass


KINDS: dict[str, Callable[[Running, Block], None]] = {
    name: getattr(Running, name) for name in ("python", "json", "text", "yaml", "bash", "console")
}


@pytest.mark.usefixtures("lean_figures", "bare_reports")
@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # Tests run side by side: engines that share a process with others keep to one thread.
    monkeypatch.setattr("metagen.runs.work.build.usable_cores", lambda: 1)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    run([block for block in BLOCKS if block.page == page and not block.needs], tmp_path)


def run(page: list[Block], place: Path) -> None:
    running = Running(place, reads=any(READS.search(block.text) for block in page))
    for block in page:
        try:
            assert block.language in KINDS, f"language {block.language!r}: expected one of {', '.join(KINDS)}"
            KINDS[block.language](running, block)
        except BaseException as error:
            error.add_note(f"in the block at {block.place}")
            raise


@pytest.mark.parametrize(
    ("language", "text", "words"),
    [
        ("python", "x = 1\ny = x / 0\n", "division by zero"),
        ("python", "await nothing()\n", "await"),
        ("yaml", "name: x\ntask: {kind: arithmatic}\n", "did you mean 'arithmetic'"),
        ("json", "{", "Expecting"),
        ("bash", "metagen run x.yaml --limt 3\n", "No such option"),
        ("bash", "metagen resume runs/nothing\n", "nothing"),
        ("bash", "make quickstrat\n", "no target"),
        ("bash", "pip install 'metageneration[tosh]'\n", "no extra"),
        ("bash", "python -m pip install -e '.[tosh]'\n", "no extra"),
        ("bash", "python -m benchmarks.nothing\n", "there is no"),
        ("bash", "frobnicate --all\n", "unknown to this test"),
        ("console", "make test\n", "no line begins"),
        ("ruby", "1\n", "expected one of"),
    ],
)
def test_what_is_wrong_is_found_and_placed(language: str, text: str, words: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n```{language}\n{text}```\n", encoding="utf-8")
    (tmp_path / "runs").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        with pytest.raises(BaseException, match=words) as caught:
            run(list(blocks(page)), tmp_path)
    assert caught.value.__notes__[-1] == "in the block at page.md:4"
    if words == "division by zero":
        last = caught.traceback[-1]
        assert (str(last.path), last.lineno + 1) == (str(page), 5)


@pytest.mark.parametrize("block", MARKED, ids=lambda block: block.place)
def test_marked_block(block: Block, tmp_path: Path) -> None:
    match block.language:
        case "python":
            compiled(block)
        case "yaml":
            parsed(block)
        case "bash" | "console":
            for command in commands(block):
                check(command[assignments(command) :] or ["cd", "."], tmp_path)
        case other:
            raise AssertionError(f"{block.place}: a {other} block runs anywhere; unmark it")
    pytest.skip(f"{block.place} {block.needs}")


def test_no_page_is_left_out() -> None:
    assert len(PAGES) > 20
    fences = {p: len(re.findall(r"^ *```\w", p.read_text("utf-8"), re.MULTILINE)) for p in PAGES}
    assert fences == {p: sum(block.page == p for block in BLOCKS) for p in PAGES}
