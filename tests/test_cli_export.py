"""`minagent sessions export` and `import`: out of a store, and back into one."""

import asyncio
import html.parser
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import shop
from hypothesis import given
from hypothesis import strategies as st
from strategies import ITEMS, events_of
from terminal import minagent

from minagent import (
    Agent,
    Event,
    Media,
    Message,
    Note,
    Opaque,
    Reasoning,
    Session,
    ToolCall,
    ToolConfirmation,
    ToolResult,
    Usage,
    pending_tool_calls,
)
from minagent.cards import cards
from minagent.cli.exports import from_jsonl, jsonl, markdown
from minagent.cli.pages import html as page_of
from minagent.errors import MinagentError
from minagent.models import OfflineModel
from minagent.stores import open_store
from minagent.timetravel import rewind

pytestmark = pytest.mark.heavy

EVIL = "<script>alert('&')</script>\n</p>\n```\n# assistant\n\x1b[31m\u202eevil"
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwAD"
DOT += "hgGAWjR9awAAAABJRU5ErkJggg=="

FENCED = re.compile(r"^(`{3,})\n.*?\n\1$", re.DOTALL | re.MULTILINE)


def every_kind() -> list[Event]:
    """Events with every kind of item, and with every field that one can have."""
    call = ToolCall(name="look", arguments={"at": EVIL, "deep": {"er": [1, 2.5, None]}})
    odd = ToolCall(name=f"odd {EVIL}", unreadable="{not json")
    document = Media(media_type="application/pdf", data="JVBERi0=")
    seen = ToolResult(
        tool_call_id=call.tool_call_id,
        name="look",
        content="\n".join(f"line {number}" for number in range(50)),
        media=(document,),
        details={"for": "people"},
    )
    failed = ToolResult(
        tool_call_id=odd.tool_call_id, name=odd.name, content=EVIL, status="error"
    )
    approved = ToolConfirmation(
        tool_call_id=call.tool_call_id,
        approved=True,
        modified_arguments={"at": "it"},
        by="eve <eve>",
        fingerprint="f",
    )
    return [
        Event(
            author="user",
            content=(
                Message(role="user", content=EVIL, extra={"citations": []}),
                Media(media_type="image/png", data=DOT),
                Media(media_type="image/png", url="https://example.org/<x>.png"),
                Media(media_type="image/svg+xml", data="PHN2Zz4="),
                Media(media_type='"><script>', data="no base64!"),
            ),
        ),
        Event(
            author="assistant",
            content=(
                Reasoning(content=EVIL, signature="sealed"),
                Reasoning(content="", redacted="sealed"),
                Message(role="assistant", content="I look.\n\n- a\n- b"),
                Opaque(block={"type": "novel", "what": EVIL}),
                call,
                odd,
            ),
            usage=Usage(input_tokens=1, output_tokens=2, cache_read_tokens=3),
            model="offline",
            stop_reason="tool_use",
            request_id="req_1",
            prefix_digest="d",
            execution_id="run",
        ),
        Event(author="assistant", content=(approved,)),
        Event(author="assistant", content=(seen, failed)),
        Event(author="memory", content=(Note(kind="kind", text=EVIL, data={"a": 1}),)),
        Event(
            author="assistant",
            content=(Message(role="assistant", content="Half"),),
            interrupted=True,
        ),
    ]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with the session `all`: every kind of item, marks, and a question."""
    url = f"sqlite:///{tmp_path_factory.mktemp('kept')}/chat.db"
    asyncio.run(fill(url))
    return url


async def fill(url: str) -> None:
    async with open_store(url) as sessions:
        agent = Agent(OfflineModel(), tools=shop.tools, session_manager=sessions)
        result = await agent.run("Not this.", session_id="all", user_id="ada & co")
        await rewind(sessions, "all", to=None)
        said = result.context.session.events[0].event_id
        await sessions.redact("all", said, "(redacted)")
        session = await sessions.get_or_create("all")
        session.append(*every_kind())
        session.state["colour"] = {"of": ["the", "kayak", 1, 2.0, True, None]}
        await sessions.save(session)
        await agent.run("call refund amount=3", session_id="all")


def read(url: str, session_id: str = "all") -> Session:
    async def work() -> Session | None:
        async with open_store(url) as sessions:
            return await sessions.get(session_id)

    session = asyncio.run(work())
    assert session is not None
    return session


def exported(url: str, form: str) -> str:
    done = minagent("sessions", "export", "all", "--format", form, "--store", url)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


# --- Out and in again ---------------------------------------------------------


def test_what_is_exported_and_imported_is_equal(url: str, tmp_path: Path) -> None:
    other, file = f"sqlite:///{tmp_path}/other.db", tmp_path / "all.jsonl"
    minagent("sessions", "export", "all", "-o", file, "--store", url)

    done = minagent("sessions", "import", file, "--store", other)

    assert (done.exit_code, done.stderr) == (0, "")
    before, after = read(url), read(other)
    assert after.events == before.events
    assert after.state == before.state
    assert after.user_id == before.user_id
    assert pending_tool_calls(after) == pending_tool_calls(before) != ()
    drawn = [cards(each.events, pending_tool_calls(each)) for each in (before, after)]
    assert drawn[0] == drawn[1]


def test_what_was_imported_can_be_continued(url: str, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path}/other.db"
    minagent("sessions", "import", "-", "--store", other, typed=exported(url, "jsonl"))
    [asked] = pending_tool_calls(read(other))
    approve = ("approvals", "approve", asked.fingerprint, "--tools", "shop:tools")

    done = minagent(*approve, "--store", other)

    assert done.exit_code == 0, done.stderr
    assert "refunded 3" in done.stdout


def test_an_import_takes_no_id_that_is_taken(url: str) -> None:
    text = exported(url, "jsonl")

    taken = minagent("sessions", "import", "-", "--store", url, typed=text)
    free = minagent("sessions", "import", "-", "--as", "b", "--store", url, typed=text)

    assert taken.exit_code == 1
    assert taken.stderr == ("minagent: there is a session 'all' already; use --as\n")
    assert free.exit_code == 0
    assert read(url, "b").events == read(url).events


def test_the_first_line_says_what_it_is_and_the_last_that_it_is_whole(url: str) -> None:
    session = read(url)

    head, *lines, last = map(json.loads, exported(url, "jsonl").splitlines())

    assert head == {
        "format": "minagent session",
        "version": 1,
        "session_id": "all",
        "user_id": "ada & co",
        "created_at": session.created_at.isoformat(),
    }
    assert [Event.from_plain(line["event"]) for line in lines] == [*session.events]
    assert last == {"state": session.state}


@given(
    st.lists(
        events_of(st.one_of(*ITEMS.values())),
        max_size=3,
        unique_by=lambda event: event.event_id,
    )
)
def test_any_log_comes_back_as_it_went(log: list[Event]) -> None:
    session = Session("any", events=log, state={"text": "\u2028\x85\r"})

    text = "\n".join(jsonl(session))
    found = from_jsonl(text.split("\n"), "any")

    assert (found.events, found.state) == (tuple(session.events), session.state)


def cut_off(lines: list[str]) -> list[str]:
    return lines[:-1]


def damaged(lines: list[str]) -> list[str]:
    return [lines[0], lines[1][:-5], *lines[2:]]


def of_another_kind(lines: list[str]) -> list[str]:
    return [lines[0], '{"event":{"author":"a","content":[{"type":"x"}]}}', *lines[2:]]


def newer(lines: list[str]) -> list[str]:
    return [lines[0].replace('"version":1', '"version":2'), *lines[1:]]


def foreign(lines: list[str]) -> list[str]:
    return ['{"messages":[]}', *lines[1:]]


def head_with(old: str, new: str) -> Callable[[list[str]], list[str]]:
    def harm(lines: list[str]) -> list[str]:
        assert old in lines[0]
        return [lines[0].replace(old, new), *lines[1:]]

    return harm


def twice_the_same_event(lines: list[str]) -> list[str]:
    return [*lines[:2], *lines[1:]]


def with_state(state: str) -> Callable[[list[str]], list[str]]:
    return lambda lines: [*lines[:-1], f'{{"state":{state}}}']


def without_an_owner(lines: list[str]) -> list[str]:
    return [lines[0].replace('"user_id"', '"owner"'), *lines[1:]]


@pytest.mark.parametrize(
    ("harm", "problem"),
    [
        (cut_off, "was cut off: its last line has no state"),
        (damaged, "line 2 is no JSON object"),
        (of_another_kind, "line 2 is no event"),
        (newer, "has format 2, newer than 1: upgrade minagent"),
        (foreign, "is no session that minagent exported"),
        (without_an_owner, "user_id"),
        (head_with('"version":1', '"version":true'), "first line has no version"),
        (head_with('"version":1', '"version":0'), "first line has no version"),
        (head_with('"version":1', '"version":-3'), "first line has no version"),
        (head_with('"session_id":"all"', '"session_id":null'), "has no session_id"),
        (head_with('"session_id":"all"', '"session_id":7'), "has no session_id"),
        (head_with('"user_id":"ada & co"', '"user_id":7'), "user_id"),
        (head_with('"user_id":"ada & co"', '"user_id":"a\\n"'), "user id"),
        (twice_the_same_event, "line 3 has the event of line 2 once more"),
        (with_state('{"pending_tool_calls":"x"}'), "pending_tool_calls"),
        (with_state('{"pending_tool_calls":[{}]}'), "pending_tool_calls"),
        (with_state("[]"), "state is no JSON object"),
        (lambda lines: [], "line 1 is no JSON object"),
        (lambda lines: lines[:1], "has no state"),
        (lambda lines: ["{}"], "is no session that minagent exported"),
        (lambda lines: ["\x00"], "line 1 is no JSON object"),
    ],
)
def test_a_file_that_is_none_is_refused_and_nothing_is_made(
    url: str, tmp_path: Path, harm: object, problem: str
) -> None:
    assert callable(harm)
    text = "".join(f"{line}\n" for line in harm(exported(url, "jsonl").splitlines()))
    place = ("--store", f"sqlite:///{tmp_path}/other.db")

    done = minagent("sessions", "import", "-", *place, typed=text)

    assert done.exit_code == 1
    assert done.stderr.count("\n") == 1
    assert problem in done.stderr
    assert minagent("sessions", "list", "--json", *place).stdout == "[]\n"


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    done = minagent("sessions", "import", "-", "--store", "memory:", typed=b"\xff\xfe")

    assert done.exit_code == 1
    assert "is no text" in done.stderr


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = minagent("sessions", "import", tmp_path / "no.jsonl", "--store", "memory:")

    assert done.exit_code == 1
    assert "no.jsonl" in done.stderr


def test_a_file_that_cannot_be_written_is_named(url: str, tmp_path: Path) -> None:
    output = ("-o", tmp_path / "no" / "all.jsonl")

    done = minagent("sessions", "export", "all", *output, "--store", url)

    assert (done.exit_code, done.stdout) == (1, "")
    assert "all.jsonl" in done.stderr


# --- The page -----------------------------------------------------------------


class Page(html.parser.HTMLParser):
    """What a browser would see: tags with attributes, and text by article."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.articles: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)
        if tag == "article":
            self.articles.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "article" in self.open:
            self.articles[-1] += data


@pytest.fixture(scope="module")
def page(url: str) -> Page:
    return Page(exported(url, "html"))


def test_the_page_has_an_article_for_each_card(url: str, page: Page) -> None:
    """What it says of each, `test_web_page_export.py` compares with the live page."""
    session = read(url)
    drawn = cards(session.events, pending_tool_calls(session))

    assert page.open == []
    assert len(page.articles) == len(drawn)


def test_the_page_needs_nothing_else_and_runs_nothing(page: Page) -> None:
    tags = {tag for tag, _ in page.tags}
    places = [
        value
        for _, attributes in page.tags
        for name, value in attributes.items()
        if name in ("src", "href")
    ]

    assert tags.isdisjoint({"script", "link", "iframe", "form", "object", "base"})
    assert places
    assert all(place is not None and place.startswith("data:") for place in places)
    assert not any(name.startswith("on") for _, each in page.tags for name in each)
    [policy] = [x["content"] for tag, x in page.tags if "http-equiv" in x]
    assert policy is not None
    assert "default-src 'none'" in policy


def test_a_picture_is_in_the_page_and_a_document_can_be_saved(page: Page) -> None:
    pictures = [attributes["src"] for tag, attributes in page.tags if tag == "img"]
    saved = [attributes["href"] for tag, attributes in page.tags if tag == "a"]

    assert pictures == [f"data:image/png;base64,{DOT}"]
    assert saved == [
        "data:image/svg+xml;base64,PHN2Zz4=",
        "data:application/pdf;base64,JVBERi0=",
    ]


def test_what_somebody_wrote_is_text_on_the_page(page: Page) -> None:
    said = page.articles[0]

    assert "<script>alert('&')</script>" in said
    assert "\\u001b[31m\\u202eevil" in said


def test_a_long_result_is_folded_and_whole(page: Page) -> None:
    [called] = [each for each in page.articles if "look done" in each]

    assert "Result, 50 lines" in called
    assert "line 49" in called
    assert "Approved by eve <eve>, with these arguments instead:" in called


def test_a_question_that_waits_is_on_the_page(page: Page) -> None:
    assert "refund waits for a decision" in page.articles[-1]
    assert "Refund 3 euros?" in page.articles[-1]


def test_the_page_has_colours_for_light_and_dark(url: str) -> None:
    assert "prefers-color-scheme: dark" in exported(url, "html")


@given(st.text(max_size=30))
def test_no_text_ends_its_element(text: str) -> None:
    said = Message(role="user", content=f"x{text}x")
    session = Session("any", events=[Event(author=text or "a", content=(said,))])

    page = Page("\n".join(page_of(session)))

    assert page.open == []
    assert len(page.articles) == 1


# --- Markdown -----------------------------------------------------------------


def test_in_markdown_what_was_said_is_quoted_and_what_ran_is_fenced(url: str) -> None:
    text = exported(url, "md")

    assert text.startswith("# all\n\n**user**\n\n> <script>")
    assert "\n> # assistant\n" in text
    assert "\n# assistant" not in re.sub(FENCED, "", text)
    assert "\x1b" not in text
    assert "\n> I look.\n>\n> - a\n> - b\n" in text
    assert "**assistant calls look**\n\narguments:\n\n````\n" in text
    assert "\nline 49\n" in text


@given(st.text(max_size=30))
def test_no_text_leaves_its_quotation(text: str) -> None:
    said = Message(role="user", content=f"x{text}x")
    session = Session("any", events=[Event(author="user", content=(said,))])

    head, author, quoted = markdown(session)

    assert (head, author) == ("# any", "**user**")
    assert all(line.startswith(">") for line in re.split(r"[\r\n]", quoted) if line)


def test_an_error_of_the_file_is_one_of_ours() -> None:
    with pytest.raises(MinagentError, match="line 1 is no JSON object"):
        from_jsonl(["?"], "file")
