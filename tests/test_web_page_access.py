"""The page for everybody: to be seen, heard, and used without a mouse."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from browser import Tab, expect, launched, tabs
from room import ASKED, REFUND, THOUGHT, WEATHER, Shop, Slow, asking, room
from serving import Client, served

from minagent import Agent
from minagent.memory import InMemoryMemoryManager, recall
from minagent.web import create_app

# One browser for the file, so one loop.
pytestmark = [pytest.mark.heavy, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Any]:
    async with launched() as started:
        yield started


async def test_nothing_serious_stands_in_anybodys_way(browser: Any) -> None:
    model = Slow(
        [THOUGHT, "Let me look at that for you.", WEATHER],
        ["It is sunny.\n```\nrefund(20)\n```\nNow the money.", REFUND],
        "Done. " + "w" * 300,
        "A long story, told at leisure.",
    )
    shop, memory = Shop(), InMemoryMemoryManager()
    agent = Agent(model, name="clerk", tools=shop.tools)
    agent.before_llm_callbacks = [recall(memory)]
    app = create_app(agent, memory=memory)
    async with served(app) as url, tabs(browser) as opened:
        async with Client(url) as client:
            earlier = Agent(
                Slow("Noted."), name="clerk", session_manager=agent.session_manager
            )
            made = (await client.new()).rpartition("/")[2]
            run = await earlier.run(
                "The umbrella is red.", session_id=made, user_id="you"
            )
            await memory.add_session(run.context.session)
        tab = await opened(url)
        found = await tab.problems("empty")
        await tab.say("The weather in Oslo, and a refund for the umbrella, please.")
        await tab.sees("Asking the station of Oslo")
        for summary in await tab.page.locator("summary").all():
            await summary.click()
        found += await tab.problems("running")
        shop.opens.set()
        await tab.is_answered(ASKED)
        found += await tab.problems("question")
        await tab.click("Edit")
        await tab.page.get_by_label("Arguments, as JSON").fill("{")
        await tab.click("Approve as edited")
        found += await tab.problems("edit")
        await tab.click("Deny")
        found += await tab.problems("deny")
        await tab.click("Approve")
        await tab.is_answered("Done.")
        found += await tab.problems("done")
        await tab.click("Delete")
        found += await tab.problems("delete")
        await tab.click("Keep it")
        model.holds_at = "told"
        await tab.say("Tell me more.")
        await tab.sees("A long story, told")
        found += await tab.problems("streaming")
        await tab.page.set_viewport_size({"width": 360, "height": 740})
        await tab.click("Conversations")
        await tab.sees("New conversation", role="link")
        found += await tab.problems("menu")

    assert found == []


async def test_all_can_be_done_with_the_keyboard(browser: Any) -> None:
    async with asking(browser) as (tab, _, shop):
        await tab.page.locator("#title").focus()
        names = []
        while "Approve" not in names:
            await tab.press("Tab")
            names.append(await tab.focus())
            assert await outline(tab) >= 2

        await tab.press("Enter")
        await tab.sees("Done.")

        assert names == ["Fork", "Delete", "Approve"]
        assert shop.refunds == [(20, "Ada")]
        assert (await tab.focus()).startswith("refund")  # the card, and not the top


async def outline(tab: Tab) -> float:
    """How thick the line around what has the focus is."""
    return await tab.page.evaluate(
        "(style => style.outlineStyle === 'none' ? 0 : parseFloat(style.outlineWidth))"
        "(getComputedStyle(document.activeElement))"
    )


async def test_an_answer_is_read_out_once_it_is_whole(browser: Any) -> None:
    model = Slow("One.", "Two words.")
    model.holds_at = "Two"
    async with room(browser, model) as opened:
        tab = await opened()
        await tab.say("Hi.")
        await tab.sees("One.")
        log = tab.page.get_by_role("log", name="Conversation")
        await expect(log).to_have_attribute("aria-live", "polite")
        await tab.say("More.")
        await tab.sees("Answering…")
        await model.held.wait()

        assert "Two" not in await log.inner_text()
        model.go.set()
        await expect(log).to_contain_text("Two words.")
