"""The documentation is true: its Python runs, its commands print what it says, its links lead somewhere, and the pages
that are generated are those that the code generates."""

from __future__ import annotations

import ast
import builtins
import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

from collectives.core.proof import ScheduleError
from collectives.registry import ALGORITHMS, Algorithm, build
from docs.generate import ABOUT, DOCS, NOTE, pages
from docs.producers import producers
from sim import simulate
from sim.cli import main, parsers
from tests.places import ROOT
from topologies import from_spec

DRAWING = ("docs/guides/pictures.md",)
"""Pages whose commands draw so much that they run in the heavier book; here their commands are read alone."""

PAGES = sorted(page for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block of a page: its language and text."""

    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(*found) for found in FENCE.findall(page.read_text(encoding="utf-8"))]


def runnable(page: Path) -> bool:
    return any(block.language in ("python", "console") for block in blocks(page))


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def alike(said: str, shown: str) -> bool:
    """Whether output is what a page shows; `...` stands for any text, on a line of its own for any lines."""
    lines = [line.rstrip() for line in shown.strip().splitlines()]
    pattern = "\n".join(r".*" if line == "..." else re.escape(line).replace(r"\.\.\.", "[^\n]*") for line in lines)
    text = "\n".join(line.rstrip() for line in said.strip().splitlines())
    return re.fullmatch(pattern, text, re.DOTALL) is not None


def run_command(line: str) -> str:
    """What a command prints, to standard output and standard error, but for the progress that a slow machine shows."""
    program, *words = shlex.split(line)
    assert program == "weft"
    heard = io.StringIO()
    with contextlib.redirect_stdout(heard), contextlib.redirect_stderr(heard):
        try:
            code = main(words)
        except SystemExit as left:
            code = int(left.code or 0)
    assert code in (0, 2), heard.getvalue()
    lines = heard.getvalue().splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(f"{words[0]}: "))


def run_python(text: str, names: dict[str, object]) -> str:
    heard = io.StringIO()
    with contextlib.redirect_stdout(heard):
        exec(compile(text, "<page>", "exec"), names)
    return heard.getvalue()


def commands(text: str) -> list[tuple[str, str]]:
    """The commands of a block, each with what is shown below it."""
    parts = re.split(r"^\$ ", text.replace("\\\n", " "), flags=re.MULTILINE)[1:]
    return [(head, shown) for head, _, shown in (part.partition("\n") for part in parts)]


RUN = [
    pytest.param(page, marks=pytest.mark.verify if name(page) in DRAWING else (), id=name(page))
    for page in PAGES if runnable(page)
]


@pytest.fixture
def registry() -> Iterator[dict[str, Algorithm]]:
    """The algorithms, without those that a page enters."""
    before = dict(ALGORITHMS)
    yield ALGORITHMS
    ALGORITHMS.clear()
    ALGORITHMS.update(before)


@pytest.mark.table
@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("page", RUN)
def test_what_a_page_runs_gives_what_it_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    names: dict[str, object] = {"__name__": "page"}
    printed = ""
    for language, text in blocks(page):
        if language == "toml":
            Path(text.removeprefix("# ").split(":", 1)[0]).write_text(text, encoding="utf-8")
        elif language == "python":
            printed = run_python(text, names)
        elif language == "text":
            assert alike(printed, text), printed
        elif language == "console":
            for line, shown in commands(text):
                said = run_command(line)
                assert alike(said, shown), f"{line}\n{said}"


CONTRIBUTING = [block.text for block in blocks(ROOT / "CONTRIBUTING.md") if block.language == "python"]


@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page)], ids=name)
def test_public_names_are_imported_from_the_top(page: Path) -> None:
    found = ast.walk(ast.parse("\n".join(block.text for block in blocks(page) if block.language == "python")))
    deep = [node for node in found if isinstance(node, ast.ImportFrom) and re.match(
        r"(sim|workloads|collectives|topologies)\.", str(node.module))]
    assert [(node.module, one.name) for node in deep for one in node.names
            if one.name in import_module(str(node.module).partition(".")[0]).__all__] == []


@pytest.mark.parametrize("study", blocks(ROOT / "docs/guides/python-studies.md"), ids=lambda block: block.text[:40])
def test_a_study_stands_alone(study: Block) -> None:
    """It may be copied without those above it."""
    if study.language == "python":
        nodes = list(ast.walk(ast.parse(study.text)))
        made = {one.asname or one.name for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)
                for one in node.names} | set(dir(builtins))
        made |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        assert {node.id for node in nodes if isinstance(node, ast.Name)} <= made


def test_every_package_of_the_reference_says_what_it_imports() -> None:
    rows = [line for line in (DOCS / "reference/packages.md").read_text(encoding="utf-8").splitlines() if "| `" in line]
    assert len(rows) > 30
    assert [row for row in rows if "." in row.split("`")[1] and "mports" not in row] == []


def test_the_algorithm_of_contributing_is_proved_and_runs(registry: dict[str, Algorithm]) -> None:
    """It is the chain of `tree`, by another name."""
    names: dict[str, object] = {"__name__": "page"}
    run_python(CONTRIBUTING[0], names)
    assert registry["line"].functions == {"broadcast": names["broadcast"]}
    for spec in ("ring:2", "ring:7", "torus:3x4"):
        line, chain = (
            build(name, "broadcast", from_spec(spec), "1MiB", form)
            for name, form in (("line", None), ("tree", "chain"))
        )
        assert line.proof == "proved"
        assert simulate(line, check=True).time_s == simulate(chain).time_s


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("text", CONTRIBUTING, ids=lambda text: text[:40])
def test_a_snippet_of_contributing_runs_alone(text: str) -> None:
    assert run_python(text, {"__name__": "page"})


@pytest.mark.usefixtures("registry")
def test_a_mistake_in_it_is_named() -> None:
    names: dict[str, object] = {"__name__": "page"}
    right, wrong = "np.where(ranks < p - 1, ranks + 1, -1)", "np.where(ranks < p - 2, ranks + 1, -1)"
    assert right in CONTRIBUTING[0]
    with pytest.raises(ScheduleError, match="rank 7"):
        run_python(CONTRIBUTING[0].replace(right, wrong), names)


WRITTEN = re.compile(r"^    (?:\$ )?(weft .*)$", re.MULTILINE)
"""A command in an indented block, which needs files or minutes that a test has not."""


@pytest.mark.parametrize("page", [page for page in PAGES if WRITTEN.search(page.read_text(encoding="utf-8"))], ids=name)
def test_commands_that_are_not_run_are_accepted(page: Path) -> None:
    known = parsers()
    for line in WRITTEN.findall(page.read_text(encoding="utf-8").replace("\\\n", " ")):
        for one in line.partition(" > ")[0].split(" && "):
            _, command, *words = shlex.split(one, comments=True)
            assert vars(known[command].parse_args(words)), line


def test_a_block_is_of_a_language_that_a_test_runs_or_of_none() -> None:
    said = {(name(page), block.language) for page in PAGES for block in blocks(page)}
    elsewhere = {("docs/gallery.md", "sh")}  # run by the tests of the report in a browser
    assert {one for one in said if one[1] not in ("python", "text", "console", "toml", "")} == elsewhere


@pytest.mark.parametrize("page", DRAWING)
def test_commands_of_a_page_are_accepted(page: str) -> None:
    known = parsers()
    lines = [line for block in blocks(ROOT / page) if block.language == "console" for line, _ in commands(block.text)]
    assert len(lines) > 5
    for line in lines:
        _, command, *words = shlex.split(line)
        assert known[command].parse_args(words).figure if "--figure" in words else True


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_picture_has_a_caption_with_what_drew_it(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    pictures = re.finditer(r"^!\[.*\)$", text, re.MULTILINE)
    below = [text[found.end() :].strip().partition("\n\n")[0] for found in pictures]
    drawn_by = re.compile("`(weft |python -m |make |draw_).*`", re.DOTALL)
    assert [caption for caption in below if not drawn_by.search(caption)] == []


@pytest.mark.parametrize("page", [*PAGES, *DOCS.glob("tutorial/*.py")], ids=name)
def test_no_line_is_lost_as_a_comment(page: Path) -> None:
    """In the site a line of text that begins with a percent sign is one."""
    assert re.findall(r"^(?:# )?%(?!%).*", page.read_text(encoding="utf-8"), re.MULTILINE) == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{name(page)} links to {target}"
        if anchor:
            heads = re.findall(r"^#+ (.*)$", there.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", head).strip().lower().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=name)
def test_links_lead_to_pages_of_the_site(page: Path) -> None:
    """The site has the pages of docs/, and these two from above it."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    targets = {(page.parent / path).resolve() for path in re.findall(r"\]\(([^)\s#]+\.md)", text) if "://" not in path}
    above = {path.name for path in targets if not path.is_relative_to(DOCS)}
    assert above <= {"CHANGELOG.md", "CONTRIBUTING.md"}


def test_generated_pages_are_those_of_the_code() -> None:
    for page, text in pages().items():
        assert (DOCS / page).read_text(encoding="utf-8") == NOTE + text, f"{page} is out of date: run `make docs`"


def test_every_table_of_what_is_absent_is_on_the_page_of_formats() -> None:
    rows = {row for one in producers() for row in one.absent}
    found = {f"{path.relative_to(ROOT)}:{name}" for room in ("topologies", "collectives", "workloads", "sim")
             for path in (ROOT / room).rglob("*.py")
             for names in re.findall(r"^([A-Z_, ]*ABSENT) = [^\"]", path.read_text(), re.MULTILINE)
             for name in names.split(", ")}
    for place in found:
        path, name = place.split(":")
        module = import_module(path.removesuffix(".py").replace("/", "."))
        assert rows.issuperset(getattr(module, name)), place
    assert len(found) >= 6


OF_OTHER_TOOLS = {"--showtopo", "--shownodesbw", "--tag-output", "--timestamp-output", "--xml", "--nnodes",
                  "--nworkers", "--report-to-json-file"}


def test_flags_that_readers_name_exist() -> None:
    flags = {flag for parser in parsers().values() for action in parser._actions for flag in action.option_strings}
    for room in ("topologies/formats", "topologies/machines", "collectives/formats", "sim/measured"):
        for path in (*(ROOT / room).glob("*.py"), DOCS / "producers.toml"):
            named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", path.read_text(encoding="utf-8")))
            assert named <= flags | OF_OTHER_TOOLS, path


def test_the_index_and_the_pages_agree_with_what_they_are_of() -> None:
    assert "%%" not in pages()["README.md"]
    (accepted,) = re.findall(r'requires-python = ">=(3\.\d+),<3\.\d+"', (DOCS.parent / "pyproject.toml").read_text())
    for page in (DOCS.parent / "README.md", DOCS / "guides" / "install.md"):
        assert re.search(rf"needs? (only )?Python {re.escape(accepted)} to 3\.\d+", page.read_text(encoding="utf-8"))


def test_every_page_is_in_the_index() -> None:
    folders = {path.name for path in DOCS.iterdir() if path.is_dir() and list(path.glob("*.md"))}
    assert folders == set(ABOUT)
    listed = set(re.findall(r"\]\(([\w./-]+\.md)\)", pages()["README.md"]))
    assert listed == {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"README.md"}


@pytest.mark.parametrize(
    ("said", "shown", "same"),
    [("a\nb\nc\n", "a\n...\nc", True), ("a\nc", "a\n...\nd", False), ("a b c", "a ... c", True), ("a", "a", True),
     ("a\nb", "a", False), ("a\nb\n", "a\n...", True), ("x (1)", "x (1)", True), ("x (12)", "x (1)", False)],
)
def test_dots_stand_for_anything(said: str, shown: str, same: bool) -> None:
    assert alike(said, shown) is same


def test_studies_in_python_are_short() -> None:
    """At most 15 lines each; that they run is the test of every page."""
    studies = [block.text for block in blocks(DOCS / "guides" / "python-studies.md") if block.language == "python"]
    assert len(studies) == 3
    assert all(len(study.strip().splitlines()) <= 15 for study in studies)
