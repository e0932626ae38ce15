"""A session that was mailed as a page says what the page in the browser says of it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
import pytest_asyncio
from browser import launched, tabs
from room import Slow
from serving import served
from terminal import minagent

from minagent import (
    Agent,
    ContentItem,
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
    pending_tool_calls,
    tool,
)
from minagent.cards import Card, ReasoningCard, ToolCard, cards
from minagent.events import Status
from minagent.multiagent import delegate
from minagent.stores import SQLiteSessionManager
from minagent.web import create_app

# One browser for the file, so one loop.
pytestmark = [pytest.mark.heavy, pytest.mark.asyncio(loop_scope="module")]

WORDS = """cards => cards.map(card => {
    const words = card.cloneNode(true);
    // What differs by nature: what can only be clicked is not in the file, a picture is
    // what is said of it, and the file tells the time in UTC.
    const clicked = ".buttons, .panel, .problem";
    for (const each of words.querySelectorAll(clicked)) each.remove();
    for (const each of words.querySelectorAll("img")) each.replaceWith(each.alt);
    for (const each of words.querySelectorAll("p.aside")) {
        each.textContent = each.textContent.replace(/^(Open until ).*/, "$1then");
    }
    const texts = document.createTreeWalker(words, NodeFilter.SHOW_TEXT);
    const said = [];
    while (texts.nextNode()) said.push(texts.currentNode.data);
    return said.join(" ").replace(/\\s+/g, " ").trim();
})"""
"""The words of each card, one space between them, of what is folded, too.

Letters that nobody sees are no part of this: the file spells them out everywhere, since
it may be read anywhere; the page only in what is decided.
"""

DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwAD"
DOT += "hgGAWjR9awAAAABJRU5ErkJggg=="
PICTURE = Media(media_type="image/png", data=DOT)
DOCUMENT = Media(media_type="application/pdf", data="JVBERi0x" * 500)
ELSEWHERE = Media(media_type="image/png", url="https://example.org/a.png")
CODE = """

See:

```python
x = 1

y = 2
```
~~~
~~~
  And <b>so</b> on. \t

````
open"""
ARGUMENTS = {
    "text": "two\nlines",
    "digits": "12",
    "nothing": "",
    "number": 12345678901234567890,
    "small": 1e-7,
    "whole": 2.0,
    "many": [1, {"deep": None}, []],
    "": "no name",
}
MEMORY = {
    "text": "My kayak is red.",
    "author": "user",
    "session": "mon",
    "date": "2026-03-02",
}
NOTES = (
    Note(kind="checkpoint", data={"label": "before it", "state": {"a": 1}}),
    Note(kind="checkpoint", data={"label": None, "state": {}}),
    Note(kind="fork", data={"from": "monday", "at": None}),
    Note(kind="recalled", text="For the model.", data={"memories": [MEMORY, "odd"]}),
    Note(kind="summary", data={"up_to": "e1", "text": CODE, "model": "m"}),
    Note(kind="delegated", data={"session_id": "all/c1", "events": [], "usage": {}}),
    Note(kind="entered", data={"tool_call_id": "c1", "task": "e1"}),
    Note(kind="again", data={"nodes": ["write", "review"]}),
    Note(kind="step", data={"followed": [[None, "write"], ["write", "review"]]}),
    Note(kind="of another kind", text=CODE, data={"a": [1, "2"]}),
    Note(kind="bare"),
)


def called(
    name: str = "look",
    *,
    status: Status = "success",
    result: str = "It is there.",
    decided: dict[str, Any] | None = None,
    **more: Any,
) -> list[Event]:
    """The events of a call, and of all that became of it."""
    given = {key: more.pop(key) for key in ("arguments", "unreadable") if key in more}
    call = ToolCall(name=name, **given)
    which = call.tool_call_id
    ended = ToolResult(
        tool_call_id=which, name=name, content=result, status=status, **more
    )
    if decided is None:
        return [said(call), said(ended)]
    if decided.pop("inside", False):
        decided |= {"tool_call_id": "inner", "path": (which,)}
    return [
        said(call),
        said(ToolConfirmation(**{"tool_call_id": which} | decided)),
        said(ended),
    ]


def said(*items: ContentItem, author: str = "clerk", **more: Any) -> Event:
    return Event(author=author, content=items, **more)


def every_kind() -> Sequence[Event]:
    """The events of cards of every kind but those that wait for a person."""
    yes, no = {"approved": True, "by": "ann"}, {"approved": False, "by": "ann"}
    return [
        said(Message(role="user", content=CODE), PICTURE, DOCUMENT, author="user"),
        said(Message(role="user", content="As she said."), author="eve & co"),
        said(
            Reasoning(content=CODE, signature="s"),
            Reasoning(content="", signature="s"),
            Reasoning(content="", redacted="sealed"),
            Message(role="assistant", content=CODE),
            ELSEWHERE,
            Opaque(block={"type": "novel", "what": ["<b>", 1]}),
        ),
        *called(arguments=ARGUMENTS, media=(PICTURE, DOCUMENT), details={"a": [1.0]}),
        *called(result="line\n" * 12 + "\n", details="12"),
        *called(result="line\n" * 13),
        *called(result="long " * 300, name="odd <name>"),
        *called(result="", unreadable="{not json"),
        *(event for each in get_args(Status) for event in called(status=each)),
        *called(decided={"approved": True}),
        *called(decided={**yes, "modified_arguments": {"at": "it"}}),
        *called(decided={**yes, "inside": True}),
        *called(status="denied", decided={**no, "reason": "too much"}),
        *called(status="denied", result="ann: no.", decided={**no, "reason": "no"}),
        *called(result="It is gone.", decided={**no, "answer": "It is gone."}),
        said(*NOTES, author="memory"),
        said(ToolCall(name="look"), Message(role="assistant", content="Half of")),
        said(Message(role="assistant", content="Half"), interrupted=True),
    ]


@tool(requires_confirmation=True, confirmation_message="Refund {amount} euros?")
def refund(amount: int) -> str:
    """Refund money."""
    return f"refunded {amount}"


@tool(requires_confirmation=True, expires_in=timedelta(days=1))
def hurry(place: str) -> str:
    """Do something soon."""
    return place


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Any]:
    async with launched() as started:
        yield started


def drawn(session: Session) -> list[Card]:
    return cards(session.events, pending_tool_calls(session))


async def test_an_exported_page_says_of_each_card_what_the_live_one_says(
    browser: Any, tmp_path: Path
) -> None:
    url, file = f"sqlite:///{tmp_path}/chat.db", tmp_path / "all.html"
    asks = ToolCall(name="refund", arguments={"amount": 4})
    inner = Agent(Slow([asks]), name="inner", tools=[refund])
    within = delegate(inner, name="inner", description="Refunds money.")
    questions = [
        ToolCall(name="refund", arguments={"amount": 3}),
        ToolCall(name="hurry", arguments={"place": "Oslo"}),
        ToolCall(name="inner", arguments={"task": "Refund 4."}),
    ]
    async with SQLiteSessionManager(tmp_path / "chat.db") as sessions:
        tools = [refund, hurry, within]
        agent = Agent(Slow(questions), tools=tools, session_manager=sessions)
        session = await sessions.create("all", "you")
        session.append(*every_kind())
        await sessions.save(session)
        result = await agent.run("And now?", session_id="all", user_id="you")
        of_the_log = drawn(result.context.session)
        async with served(create_app(agent)) as address, tabs(browser) as opened:
            tab = await opened(f"{address}/#/s/all")
            articles = tab.page.locator("#cards > article")
            await articles.nth(len(of_the_log) - 1).wait_for()
            live = await articles.evaluate_all(WORDS)

            words = ("sessions", "export", "all", "--format", "html", "-o", file)
            await asyncio.to_thread(minagent, *words, "--store", url)
            await tab.page.goto(file.as_uri())
            mailed = await tab.page.locator("main > article").evaluate_all(WORDS)

    assert mailed == live
    assert len(live) == len(of_the_log)
    # All that there can be is there.
    assert {type(each) for each in of_the_log} == {*get_args(Card)}
    assert {x.visibility for x in of_the_log if isinstance(x, ReasoningCard)} == {
        *("shown", "hidden", "redacted")
    }
    assert {x.status for x in of_the_log if isinstance(x, ToolCard)} == {
        *("pending", *get_args(Status))
    }
