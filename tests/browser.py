"""A real browser for tests: the system's Chromium, driven by Playwright.

`Tab` is a tab with the page of the web room in it, as a person sees and uses it: by
names and words, and not by how the page is made. Where there is no browser, the test
that asks for one is skipped.
"""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from postgres import missing

try:
    from axe_playwright_python.async_playwright import Axe
    from playwright.async_api import Browser, Locator, Page, async_playwright, expect
except ModuleNotFoundError:
    Axe = Browser = Locator = Page = async_playwright = expect = None

SHOTS = "MINAGENT_TEST_SHOTS"
"""The environment variable that tells a folder for pictures of what is checked."""

DESK, PHONE = {"width": 1200, "height": 860}, {"width": 360, "height": 740}
QUIET = (
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-gpu",
    "--process-per-site",
)


@asynccontextmanager
async def launched() -> AsyncIterator["Browser"]:
    """Start the browser."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), 0)
    if not program or async_playwright is None:
        missing("no browser here: apt-get install -y chromium, pip install playwright")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=program, args=[*QUIET]
        )
        yield browser
        await browser.close()


class Tab:
    """A tab with the page in it.

    Attributes:
        page: Playwright's page.
        errors: What went wrong in its scripts.
        sent: The paths that it posted to.
    """

    def __init__(self, page: "Page") -> None:
        self.page = page
        self.errors: list[str] = []
        self.sent: list[str] = []
        page.set_default_timeout(10_000)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on(
            "request",
            lambda asked: (
                self.sent.append(asked.url.rpartition("/")[2])
                if asked.method == "POST"
                else None
            ),
        )

    async def open(self, url: str) -> "Tab":
        await self.page.goto(url)
        await self.sees("Message", role="textbox")
        return self

    async def close(self) -> None:
        await self.page.close()

    def named(self, name: str, role: str = "button") -> "Locator":
        return self.page.get_by_role(role, name=name, exact=True)

    async def click(self, name: str, role: str = "button") -> None:
        await self.named(name, role).click()

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self.page.keyboard.press(key)

    async def say(self, text: str) -> None:
        await self.page.get_by_label("Message", exact=True).fill(text)
        await self.press("Enter")

    async def sees(self, text: str, *, role: str | None = None) -> None:
        """Wait until there is a text, or a control of that name."""
        found = self.named(text, role) if role else self.page.get_by_text(text)
        await found.first.wait_for()

    async def sees_no(self, text: str, *, role: str | None = None) -> None:
        """Wait until there is none."""
        found = self.named(text, role) if role else self.page.get_by_text(text)
        await found.first.wait_for(state="hidden")

    async def is_at_rest(self) -> None:
        """Wait until nothing goes on."""
        await self.named("Send").wait_for()

    async def is_answered(self, text: str) -> None:
        """Wait until there is a text, and the run that brought it has ended."""
        await self.sees(text)
        await self.is_at_rest()

    async def cards(self) -> list[str]:
        """The text of each card, of what is folded, too."""
        return await self.page.locator("#cards > article").evaluate_all(
            "cards => cards.map(card => card.textContent)"
        )

    async def draft(self) -> str:
        return (await self.page.locator("#draft").inner_text()).strip()

    async def focus(self) -> str:
        """The name of what has the focus, as far as it is written on it."""
        return await self.page.evaluate(
            "document.activeElement.labels?.[0]?.textContent ??"
            " document.activeElement.textContent.trim()"
        )

    async def fits(self) -> bool:
        """Whether nothing has to be scrolled sideways."""
        return await self.page.evaluate(
            "document.documentElement.scrollWidth <= innerWidth"
        )

    async def problems(self, state: str) -> list[str]:
        """What is wrong for those who see, hear or move otherwise, in a state.

        Args:
            state: Its name, for the pictures.
        """
        found = []
        for scheme in ("light", "dark"):
            await self.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            await self._shoot(f"{state}-{scheme}")
            asked = {"resultTypes": ["violations"]}
            if scheme == "dark":  # where nothing but the colours is another
                asked["runOnly"] = ["color-contrast"]
            report = (await Axe().run(self.page, options=asked)).response
            found += [
                f"{state}, {scheme}: {each['id']}: {node['html']}"
                for each in report["violations"]
                for node in each["nodes"]
            ]
        await self.page.emulate_media(color_scheme="light")
        await self.page.set_viewport_size(PHONE)
        await self._shoot(f"{state}-phone")
        if not await self.fits():
            found.append(f"{state}: too wide for a phone")
        await self.page.set_viewport_size(DESK)
        return found

    async def _shoot(self, name: str) -> None:
        if folder := os.environ.get(SHOTS):
            await self.page.screenshot(path=Path(folder) / f"{name}.png")


@asynccontextmanager
async def tabs(browser: "Browser") -> AsyncIterator[Any]:
    """Tabs, which are opened by calling what this yields; no script in them may fail.

    They are all in one window, since to open one takes as long as a test.
    """
    window = (browser.contexts or [await browser.new_context(viewport=DESK)])[0]
    opened: list[Tab] = []

    async def tab(url: str) -> Tab:
        opened.append(Tab(await window.new_page()))
        return await opened[-1].open(url)

    yield tab
    for each in opened:
        await each.close()
    assert [error for each in opened for error in each.errors] == []
