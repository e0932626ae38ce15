"""The page, in a browser: what one sees live is what is there after a reload."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from browser import Tab, expect, launched, tabs
from room import ASKED, REFUND, THOUGHT, WEATHER, Shop, Slow, asking, room
from serving import Client, served
from starlette.applications import Starlette

from minagent import (
    Agent,
    ExecutionContext,
    ModelRequest,
    Note,
    Reasoning,
    ToolCall,
    ToolResult,
    tool,
)
from minagent.memory import InMemoryMemoryManager, recall
from minagent.stores import SQLiteSessionManager
from minagent.web import Server, create_app

# One browser for the file, so one loop.
pytestmark = [pytest.mark.heavy, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Any]:
    async with launched() as started:
        yield started


# --- The reload ---------------------------------------------------------------


async def test_a_tab_closed_in_mid_stream_is_found_again_card_by_card(
    browser: Any,
) -> None:
    model = Slow([THOUGHT, "Let me look.", WEATHER], ["Now the money.", REFUND], "Bye.")
    model.holds_at, shop = "me", Shop()
    async with room(browser, model, shop) as opened:
        left = await opened()
        await left.say("Weather, and a refund.")
        await model.held.wait()
        await left.sees("Let me")
        address = left.page.url
        undisturbed = await opened(address)
        await undisturbed.sees("Let me")
        await left.close()

        again = await opened(address)
        await again.sees("Let me")
        seen = [await each.draft() for each in (undisturbed, again)]
        assert seen == ["clerk thought\nclerk\n\nLet me"] * 2
        model.go.set()
        for tab in (undisturbed, again):
            await tab.sees("Asking the station of Oslo")
            await tab.sees("running")
        shop.opens.set()
        for tab in (undisturbed, again):
            await tab.is_answered(ASKED)
        late = await opened(address)
        await late.sees(ASKED)
        assert await again.cards() == await undisturbed.cards() == await late.cards()

        await again.click("Approve")
        for tab in (undisturbed, again, late):
            await tab.is_answered("Bye.")
        later = await opened(address)
        await later.sees("Bye.")
        cards = await undisturbed.cards()
        for tab in (again, late, later):
            assert await tab.cards() == cards
    assert cards == [
        "YouWeather, and a refund.",
        "clerk thoughtFirst the weather, then the money.",
        "clerkLet me look.",
        'weather doneplaceOslosunnyDetails{\n  "station": 7\n}',
        "clerkNow the money.",
        "refund doneamount20customerAdaApproved by yourefunded 20",
        "clerkBye.",
    ]


async def test_what_was_unfolded_and_typed_stays_while_the_page_goes_on(
    browser: Any,
) -> None:
    model = Slow([THOUGHT, "Wait here.", REFUND, WEATHER])
    model.holds_at, shop = "Wait", Shop()
    async with room(browser, model, shop) as opened:
        tab = await opened()
        await tab.say("Go.")
        await model.held.wait()
        await tab.page.get_by_text("clerk thought").click()
        model.go.set()
        await tab.sees("Asking the station of Oslo")
        await expect(tab.page.get_by_text(THOUGHT.content)).to_be_visible()
        shop.opens.set()
        await tab.is_at_rest()
        await tab.click("Deny")
        await tab.page.keyboard.type("too mu")
        async with Client(tab.page.url.partition("#")[0]) as client:
            await client.post(f"/api/sessions/{session_in(tab)}/fork", json={})
        await tab.page.keyboard.type("ch")

        assert await tab.page.get_by_label("Why not?").input_value() == "too much"


def session_in(tab: Tab) -> str:
    return tab.page.url.rpartition("/")[2]


# --- Decisions ----------------------------------------------------------------


async def test_what_one_tab_approves_the_other_shows(browser: Any) -> None:
    async with asking(browser) as (one, opened, shop):
        other = await opened(one.page.url)
        await other.sees(ASKED)

        await one.click("Approve")

        for tab in (one, other):
            await tab.is_answered("Done.")
        await other.sees_no("Approve", role="button")
        assert await other.cards() == await one.cards()
        assert shop.refunds == [(20, "Ada")]


async def test_a_double_click_approves_once(browser: Any) -> None:
    async with asking(browser) as (tab, _, shop):
        await tab.named("Approve").dblclick()

        await tab.sees("Done.")
        assert tab.sent.count("decisions") == 1
        assert shop.refunds == [(20, "Ada")]


async def test_two_tabs_that_approve_at_once_approve_once(browser: Any) -> None:
    async with asking(browser) as (one, opened, shop):
        other = await opened(one.page.url)
        await other.sees(ASKED)
        both_have_clicked = asyncio.Barrier(2)

        async def hold(route: Any) -> None:
            await both_have_clicked.wait()
            await route.continue_()

        for tab in (one, other):
            await tab.page.route("**/decisions", hold)

        await asyncio.gather(one.click("Approve"), other.click("Approve"))

        for tab in (one, other):
            await tab.sees("Done.")
        assert shop.refunds == [(20, "Ada")]


async def test_arguments_can_be_other_ones(browser: Any) -> None:
    async with asking(browser) as (tab, _, shop):
        await tab.click("Edit")
        edited = '{"amount": 15, "customer": "Ada"}'
        await tab.page.get_by_label("Arguments, as JSON").fill(edited)

        await tab.click("Approve as edited")

        await tab.sees("Done.")
        await tab.sees("Approved by you, with these arguments instead:")
        assert shop.refunds == [(15, "Ada")]


async def test_what_is_no_json_is_not_sent(browser: Any) -> None:
    async with asking(browser) as (tab, _, _):
        await tab.click("Edit")
        await tab.page.get_by_label("Arguments, as JSON").fill("[20]")
        await tab.click("Approve as edited")

        await tab.sees("Arguments are a JSON object: {…}")
        assert await tab.focus() == "Arguments, as JSON"
        assert "decisions" not in tab.sent


async def test_a_denial_tells_the_model_why(browser: Any) -> None:
    async with asking(browser, "A pity.") as (tab, _, shop):
        await tab.click("Deny")
        await tab.page.keyboard.type("too much")
        await tab.press("Enter")

        await tab.sees("A pity.")
        await tab.sees("Denied by you: too much")
        assert shop.refunds == []


async def test_a_number_is_shown_and_sent_as_it_was_written(browser: Any) -> None:
    number = 12345678901234567890
    call = ToolCall(name="refund", arguments={"amount": number, "customer": "Ada"})
    shop = Shop()
    async with room(browser, Slow([call], "Done."), shop) as opened:
        tab = await opened()
        await tab.say("Refund it.")
        await tab.sees(f"Refund {number} euros to Ada?")
        assert f"amount{number}" in (await tab.cards())[1]
        await tab.click("Edit")
        await tab.click("Approve as edited")

        await tab.sees("Done.")
        assert shop.refunds == [(number, "Ada")]


# --- Restarts -----------------------------------------------------------------


@asynccontextmanager
async def serving(app: Starlette, port: int = 0) -> AsyncIterator[int]:
    """Serve an app at a port, and yield it."""
    server = Server(app, port=port)
    work = asyncio.create_task(server.serve())
    while not server.started:
        assert not work.done(), "the server did not start"
        await asyncio.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await work


async def test_a_restart_between_question_and_decision_changes_nothing(
    browser: Any, tmp_path: Path
) -> None:
    path, shop = tmp_path / "chat.db", Shop()

    def started(*replies: Any) -> Starlette:
        store = SQLiteSessionManager(path)
        agent = Agent(Slow(*replies), tools=shop.tools, session_manager=store)
        return create_app(agent)

    async with tabs(browser) as opened:
        async with serving(started([REFUND])) as port:
            tab = await opened(f"http://127.0.0.1:{port}/")
            await tab.say("Refund it.")
            await tab.is_answered(ASKED)
            before = await tab.cards()
        await tab.sees("The server cannot be reached.")
        async with serving(started("Done."), port):
            await tab.sees_no("The server cannot be reached.")
            assert await tab.cards() == before
            await tab.click("Approve")
            await tab.is_answered("Done.")

            reloaded = await opened(tab.page.url)
            await reloaded.sees("Done.")
            assert await reloaded.cards() == await tab.cards()
    assert shop.refunds == [(20, "Ada")]


async def test_after_a_reload_the_next_request_has_the_new_system_prompt(
    browser: Any, tmp_path: Path
) -> None:
    store = SQLiteSessionManager(tmp_path / "chat.db")
    model = Slow("Hello.", "Hello again.")
    agent = Agent(model, instructions="Be brief.", session_manager=store)
    async with served(create_app(agent)) as url, tabs(browser) as opened:
        tab = await opened(url)
        await tab.say("Hi.")
        await tab.is_answered("Hello.")

        agent.instructions = "Rhyme."
        await tab.page.reload()
        await tab.sees("Hello.")
        await tab.say("Hi again.")
        await tab.sees("Hello again.")

    assert [each.instructions for each in model.requests] == ["Be brief.", "Rhyme."]


# --- Runs ---------------------------------------------------------------------


async def test_escape_stops_an_answer_and_go_on_goes_on(browser: Any) -> None:
    model = Slow("Once upon a time", "And so on.")
    model.holds_at = "upon"
    async with room(browser, model) as opened:
        tab = await opened()
        await tab.say("Tell me.")
        await tab.sees("Once upon")

        await tab.press("Escape")
        await tab.is_at_rest()
        await tab.sees("There is no answer yet.")
        model.holds_at = ""
        await tab.click("Go on")

        await tab.sees("And so on.")
        await tab.sees_no("There is no answer yet.")


async def test_a_run_that_fails_says_so_without_its_secrets(browser: Any) -> None:
    async with room(browser, Slow()) as opened:
        tab = await opened()
        await tab.say("Hi.")

        await tab.sees("It failed: something went wrong; the server's log says what")
        await tab.sees("Go on", role="button")


async def test_what_was_recalled_stands_with_the_message(browser: Any) -> None:
    memory = InMemoryMemoryManager()
    agent = Agent(
        Slow("Noted.", "Red."), name="clerk", before_llm_callbacks=[recall(memory)]
    )
    async with served(create_app(agent, memory=memory)) as url, tabs(browser) as opened:
        tab = await opened(url)
        await tab.say("My kayak is red.")
        await tab.is_answered("Noted.")
        await tab.click("New conversation", role="link")
        await tab.say("What is my kayak?")
        await tab.is_answered("Red.")

        [_, recalled, _] = await tab.cards()
        assert recalled.startswith("Recalled memories")
        assert recalled.endswith(": My kayak is red.")


async def test_shift_enter_begins_a_line(browser: Any) -> None:
    model = Slow("Yes.")
    async with room(browser, model) as opened:
        tab = await opened()
        await tab.page.keyboard.type("One")
        await tab.press("Shift+Enter")
        await tab.page.keyboard.type("two")
        await tab.press("Enter")
        await tab.is_answered("Yes.")

        assert await tab.cards() == ["YouOne\ntwo", "clerkYes."]


CODE = "See:\n```python\nx = 1\n```\nThat is all."


async def test_code_stands_in_a_block(browser: Any) -> None:
    async with room(
        browser, Slow("See:\n```python\nx = 1\n```\nThat is all.")
    ) as opened:
        tab = await opened()
        await tab.say("Code?")
        await tab.is_answered("x = 1")

        parts = tab.page.locator("#cards .assistant .text > *")
        assert await parts.evaluate_all("all => all.map(x => x.localName)") == [
            *("p", "pre", "p")
        ]


# --- The list -----------------------------------------------------------------


async def test_conversations_can_be_begun_opened_copied_and_deleted(
    browser: Any,
) -> None:
    async with room(browser, Slow("One.", "Two.")) as opened:
        tab = await opened()
        await tab.say("First.")
        await tab.sees("One.")
        await tab.click("New conversation", role="link")
        await tab.sees("Nothing has been said yet.")
        await tab.say("Second.")
        await tab.sees("Two.")
        assert await listed(tab) == ["Second.", "First."]

        await tab.click("First.", role="link")
        await tab.sees("One.")
        await tab.click("Fork")
        await tab.sees("Note: fork")
        assert await listed(tab) == ["First.", "Second.", "First."]

        await tab.click("Delete")
        await tab.click("Delete it")
        await tab.sees("Nothing has been said yet.")
        assert await listed(tab) == ["Second.", "First."]
        await tab.page.reload()
        await tab.sees("Second.", role="link")
        assert await listed(tab) == ["Second.", "First."]


async def listed(tab: Tab) -> list[str]:
    return await tab.page.locator("nav li").all_inner_texts()


async def test_a_conversation_that_is_not_there_is_said_to_be_so(browser: Any) -> None:
    async with room(browser, Slow()) as opened:
        tab = await opened()
        for name in ("nobody", "%E0%A4%A", "..%2Fme"):
            await tab.page.evaluate(f"location.hash = '#/s/{name}'")

            await tab.sees("There is no such conversation.")

            await tab.click("New conversation", role="link")
            await tab.sees_no("There is no such conversation.")


async def test_a_conversation_deleted_in_one_tab_is_left_by_the_other(
    browser: Any,
) -> None:
    async with room(browser, Slow("One.")) as opened:
        one = await opened()
        await one.say("First.")
        await one.is_answered("One.")
        other = await opened(one.page.url)
        await other.sees("One.")

        await one.click("Delete")
        await one.click("Delete it")

        await other.sees("Nothing has been said yet.")


# --- What is said is text -----------------------------------------------------

HOSTILE = (
    "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
    "<a href='javascript:window.hacked = 1'>here</a>"
    " [there](javascript:window.hacked=1) \u2028\r\n\r\n"
    'event: cards\ndata: {"gone": [], "changed": [], "closes_reply": true}\n\n'
    "event: deleted\ndata: {}\n\n</p></article>"
    "\u202edetrever\u061c\u00ad\u3164\U000e0041"
)


async def test_nothing_that_is_said_can_run_or_forge(browser: Any) -> None:
    @tool(requires_confirmation=True, confirmation_message="{text}")
    def hostile(text: str, context: ExecutionContext) -> ToolResult:
        """Say something hostile."""
        context.progress(HOSTILE)
        return ToolResult(
            tool_call_id="", name="hostile", content=HOSTILE, details={HOSTILE: HOSTILE}
        )

    thought = Reasoning(content=HOSTILE, signature="s")
    call = ToolCall(name="hostile", arguments={"text": HOSTILE})
    unknown = ToolCall(name=HOSTILE, arguments={HOSTILE: HOSTILE})
    model = Slow([thought, HOSTILE, call, unknown], HOSTILE)
    agent = Agent(model, name=HOSTILE, tools=[hostile], before_llm_callbacks=[remark])
    async with served(create_app(agent)) as url, tabs(browser) as opened:
        tab = await opened(url)
        await tab.say(HOSTILE)
        await tab.sees("Deny", role="button")
        await tab.is_at_rest()
        await tab.click("Deny")
        await tab.page.get_by_label("Why not?").fill(HOSTILE)
        await tab.press("Escape")
        await tab.click("Approve")
        reloaded = await opened(tab.page.url)
        for each in (tab, reloaded):
            await each.page.locator("#cards > article").nth(6).wait_for()

        assert await tab.cards() == await reloaded.cards()
        for each in (tab, reloaded):
            assert await each.page.evaluate("window.hacked") is None
            assert await each.page.locator(FORBIDDEN).count() == 0
            assert not [x for x in await each.cards() if "<script>" not in x]
        asked = await reloaded.page.locator("dd").first.inner_text()
        assert r"\u{202e}detrever\u{61c}\u{ad}\u{3164}\u{e0041}" in asked


FORBIDDEN = (
    "main script, main a, main img, main iframe, nav script, nav img, nav a[href^=j]"
)


async def remark(context: ExecutionContext, request: ModelRequest) -> None:
    """Have a note in the log, before the first reply."""
    if len(context.session.events) == 1:
        note = Note(kind=HOSTILE, text=HOSTILE, data={"x": HOSTILE})
        await context.record(note, author=HOSTILE)
