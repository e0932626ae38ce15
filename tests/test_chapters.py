"""The chapters say what is so: their code runs, prints what is shown, and is quoted.

Whatever a chapter runs, it runs without a network.
"""

import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from xml.etree import ElementTree

import pytest
from chapter_text import CHAPTERS, ROOT, commands, demo_command, offline, parts

pytestmark = pytest.mark.heavy

BLOCKS = ROOT / "tests" / "programs" / "blocks.py"
MAX_DEMO_LINES = 60

each_chapter = pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.name)


def readme_of(chapter: Path) -> str:
    return (chapter / "README.md").read_text(encoding="utf-8")


def run(
    *command: str, cwd: Path = ROOT, given: str = "", **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a command without a network."""
    return subprocess.run(
        command,
        cwd=cwd,
        env=offline() | env,
        input=given,
        capture_output=True,
        encoding="utf-8",
        timeout=100,
    )


# --- The text -----------------------------------------------------------------


@each_chapter
def test_a_chapter_opens_with_its_title_and_its_one_idea(chapter: Path) -> None:
    title, blank, idea, *_ = readme_of(chapter).splitlines()

    assert re.match(rf"# {chapter.name[2:4]}  \S", title)
    assert blank == ""
    assert re.match(r"\*\S", idea)
    assert re.search(r"\([^)]*\bbook\b[^)]*\)", readme_of(chapter).split("\n\n")[1])


@each_chapter
def test_a_chapter_has_400_to_900_words(chapter: Path) -> None:
    prose = [part.text for part in parts(readme_of(chapter)) if part.kind == "prose"]
    words = re.sub(r"^```.*?^```$", "", "\n".join(prose), flags=re.M | re.S).split()

    assert 400 <= len(words) <= 900


@each_chapter
def test_a_chapter_ends_with_what_you_can_now_do(chapter: Path) -> None:
    *_, last = readme_of(chapter).strip().split("\n\n")

    assert last.startswith("You can now ")


@each_chapter
def test_a_chapter_leads_to_a_file_of_the_package_and_to_its_exercise(
    chapter: Path,
) -> None:
    assert "minagent/" in readme_of(chapter)
    assert "exercise.py" in readme_of(chapter)
    assert f"pytest chapters/{chapter.name} --mine" in readme_of(chapter)


@pytest.mark.parametrize(
    "page",
    [ROOT / "chapters" / "README.md", *(path / "README.md" for path in CHAPTERS)],
    ids=lambda path: path.parent.name,
)
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    prose = "\n".join(part.text for part in parts(text) if part.kind == "prose")
    links = re.findall(r"\]\((?!\w+:|#)([^)#]+)\)", prose)

    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_table_has_a_line_for_each_chapter_by_its_title() -> None:
    text = (ROOT / "chapters" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d\d) \| \[(.+?)\]\((.+?)/", text, flags=re.MULTILINE)
    titles = [readme_of(chapter).splitlines()[0] for chapter in CHAPTERS]

    shown = [(f"# {number}  {title}", name) for number, title, name in rows]
    names = [chapter.name for chapter in CHAPTERS]
    assert shown == list(zip(titles, names, strict=True))


# --- The code in the text -----------------------------------------------------


@each_chapter
def test_every_block_runs_and_prints_what_is_shown(
    chapter: Path, tmp_path: Path
) -> None:
    code = [part for part in parts(readme_of(chapter)) if part.kind == "code"]

    blocks = json.dumps([part.text for part in code])
    done = run(sys.executable, "-W", "error", str(BLOCKS), cwd=tmp_path, given=blocks)

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == [part.output for part in code]


@each_chapter
def test_a_quote_is_what_stands_in_the_file(chapter: Path) -> None:
    quotes = [part for part in parts(readme_of(chapter)) if part.kind == "quote"]

    for quote in quotes:
        lines = (ROOT / quote.source).read_text(encoding="utf-8").splitlines()
        size = len(quote.text.splitlines())
        windows = ("\n".join(lines[at : at + size]) for at in range(len(lines)))
        assert quote.text.rstrip("\n") in map(dedent, windows), quote.text


@each_chapter
def test_a_command_prints_what_is_shown(chapter: Path) -> None:
    for command, shown in shown_commands(chapter).items():
        if command != demo_command(chapter):  # it has its own test
            done = run("bash", "-c", f"({command}) 2>&1")

            assert (done.stdout, done.returncode) == (shown, 0), command


def shown_commands(chapter: Path) -> dict[str, str]:
    found = parts(readme_of(chapter))
    consoles = [part.text for part in found if part.kind == "console"]
    return dict(each for console in consoles for each in commands(console))


# --- The demo -----------------------------------------------------------------


@each_chapter
def test_a_demo_fits_on_a_screen(chapter: Path) -> None:
    lines = (chapter / "demo.py").read_text(encoding="utf-8").splitlines()

    assert len(lines) <= MAX_DEMO_LINES


@each_chapter
def test_a_demo_prints_what_is_shown_and_leaves_no_file(chapter: Path) -> None:
    before = files()

    _, *command = demo_command(chapter).split()
    done = run(sys.executable, "-W", "error", *command)

    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout == shown_commands(chapter).get(demo_command(chapter))
    assert files() - before == set()


def files() -> set[Path]:
    return {*ROOT.glob("[!.]*"), *(ROOT / "chapters").glob("ch*/*.*")}


# --- The exercise -------------------------------------------------------------


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], str]:
    """What became of each test, by its place, on the stubs; and the whole output."""
    report = tmp_path_factory.mktemp("stubs") / "report.xml"
    options = ("-p", "no:cacheprovider", f"--junit-xml={report}", "--mine")
    done = run(sys.executable, "-m", "pytest", "chapters", *options)
    outcomes = {
        f"{case.get('classname')}::{case.get('name')}": ",".join(
            each.tag for each in case if each.tag in ("failure", "error", "skipped")
        )
        or "passed"
        for case in ElementTree.parse(report).iter("testcase")
    }
    return outcomes, done.stdout


# That they pass on the solutions is seen where they are collected: with all tests.
@each_chapter
def test_every_test_fails_on_the_stub(
    chapter: Path, stubs: tuple[dict[str, str], str]
) -> None:
    place = f"chapters.{chapter.name}."
    outcomes = {x: y for x, y in stubs[0].items() if x.startswith(place)}

    assert outcomes != {}
    assert {x: y for x, y in outcomes.items() if y not in ("failure", "error")} == {}


def test_the_grading_says_what_is_missing(stubs: tuple[dict[str, str], str]) -> None:
    outcomes, told = stubs

    assert f"0 of {len(outcomes)} are right. Still missing:\n- " in told, told


@each_chapter
def test_the_solution_has_the_names_of_the_stub(chapter: Path) -> None:
    names = [
        re.findall(
            r"^(?:class|def|async def) ([a-zA-Z]\w*)",
            (chapter / name).read_text(encoding="utf-8"),
            flags=re.MULTILINE,
        )
        for name in ("exercise.py", "solution.py")
    ]

    assert names[0] != []
    assert set(names[0]) <= set(names[1])


# --- The grading itself, on a chapter made for it ------------------------------


@pytest.fixture
def half_done(tmp_path: Path) -> Path:
    """A chapter in a folder of its own whose exercise is half done."""
    chapter = tmp_path / "chapters" / "ch99_sums"
    chapter.mkdir(parents=True)
    for name in ("__init__.py", "conftest.py"):
        kept = (ROOT / "chapters" / name).read_bytes()
        (chapter.parent / name).write_bytes(kept)
    (chapter / "__init__.py").touch()
    sums = "def add(a, b):\n    return a + b\n\n\ndef double(a):\n    {}\n"
    (chapter / "solution.py").write_text(sums.format("return 2 * a"))
    missing = 'raise NotImplementedError("double is not written yet")'
    (chapter / "exercise.py").write_text(sums.format(missing))
    (chapter / "test_chapter.py").write_text(
        "def test_add(work): assert work.add(1, 2) == 3\n"
        "def test_double(work): assert work.double(2) == 4\n"
        "def test_sign(work): assert work.add(1, 1) == 0, 'add must subtract'\n"
    )
    return chapter


def graded_by_reader(chapter: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider")
    return run(*command, f"chapters/{chapter.name}", *options, cwd=chapter.parents[1])


def test_the_summary_counts_and_names_what_is_missing(half_done: Path) -> None:
    done = graded_by_reader(half_done, "--mine")

    assert done.returncode == 1
    summary = done.stdout[done.stdout.index("your exercise") :].splitlines()
    assert summary[1:-1] == [
        "1 of 3 is right. Still missing:",
        "- double is not written yet",
        "  (test_double)",
        "- add must subtract",
        "  (test_sign)",
    ]


def test_an_exercise_that_cannot_be_imported_is_told_so(half_done: Path) -> None:
    (half_done / "exercise.py").write_text("def add(a, b)\n")

    done = graded_by_reader(half_done, "--mine")

    assert "0 of 3 are right. Still missing:\n" in done.stdout
    assert "SyntaxError: expected ':'" in done.stdout[done.stdout.index("Still") :]


def test_without_the_option_the_solution_is_graded(half_done: Path) -> None:
    done = graded_by_reader(half_done, "-k", "add or double")

    assert done.returncode == 0, done.stdout
    assert "your exercise" not in done.stdout


# --- No network ---------------------------------------------------------------

FAR = "192.0.2.1"  # of a block that is kept for examples (RFC 5737)
ATTEMPTS = {
    "connect": f"socket.socket().connect(({FAR!r}, 80))",
    "connect_ex": f"socket.socket().connect_ex(({FAR!r}, 80))",
    "connect, IPv6": "socket.socket(socket.AF_INET6).connect(('2001:db8::1', 80))",
    "sendto": f"socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ({FAR!r}, 53))",
    "name": "socket.getaddrinfo('example.org', 443)",
    "asyncio": f"asyncio.run(asyncio.open_connection({FAR!r}, 80))",
    "http": "urllib.request.urlopen('http://example.org', timeout=5)",
}


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_what_goes_out_is_refused_also_in_a_second_process(attempt: str) -> None:
    program = f"import asyncio, socket, urllib.request\n{ATTEMPTS[attempt]}"
    again = f"subprocess.run([sys.executable, '-c', {program!r}])"

    done = run(sys.executable, "-c", f"import subprocess, sys; {again}")

    assert "RuntimeError: the network is off: socket." in done.stderr


def test_loopback_is_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = ("localhost", server.getsockname()[1])
        program = f"import socket; socket.create_connection({address}).sendall(b'near')"

        done = run(sys.executable, "-c", program)
        accepted, _ = server.accept()
        with accepted:
            heard = accepted.recv(4)

    assert (done.stderr, heard) == ("", b"near")
