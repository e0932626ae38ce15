"""Two questions outlive the process that asked them, and two people click at once."""

import asyncio
import sys
from pathlib import Path
from subprocess import PIPE
from tempfile import TemporaryDirectory

from minagent import Agent, ToolCall, ToolConfirmation, pending_tool_calls, tool
from minagent.models import ScriptedModel
from minagent.stores import SQLiteSessionManager

NAMES = ("draft.txt", "notes.txt")
CALLS = [ToolCall(name="delete_file", arguments={"name": name}) for name in NAMES]


async def run(folder: Path, model: ScriptedModel, *said: ToolConfirmation) -> str:
    @tool(requires_confirmation=True, confirmation_message="Delete {name}?")
    def delete_file(name: str) -> None:
        """Delete one file."""
        (folder / name).unlink()
        print(f"  {name} is deleted")

    sessions = SQLiteSessionManager(folder / "sessions.db")
    agent = Agent(model, tools=[delete_file], session_manager=sessions)
    words = None if said else "Tidy up."
    result = await agent.run(words, session_id="files", tool_confirmations=said)
    return result.output or result.status


async def ask(folder: Path) -> None:
    print(await run(folder, ScriptedModel([CALLS])), flush=True)
    await asyncio.sleep(60)  # the process is killed here


async def main() -> None:
    with TemporaryDirectory() as name:
        folder, model = Path(name), ScriptedModel(["I deleted what you let me."])
        for each in NAMES:
            (folder / each).touch()
        command = [sys.executable, "-m", "chapters.ch07_stop_and_ask.demo", name]
        root = Path(__file__).parents[2]
        asking = await asyncio.create_subprocess_exec(*command, cwd=root, stdout=PIPE)
        assert asking.stdout is not None
        print("A process asks:", (await asking.stdout.readline()).decode().strip())
        asking.kill()
        await asking.wait()
        print("It is killed. What is left of it is in the store:")
        session = await SQLiteSessionManager(folder / "sessions.db").get("files")
        draft, notes = pending_tool_calls(session) if session else ()
        print(draft.confirmation_message, "Ada and Bob say yes at once.")
        clicks = [run(folder, model, draft.approve(by=who)) for who in ("ada", "bob")]
        outcomes = await asyncio.gather(*clicks, return_exceptions=True)
        print(*(f"  {type(x).__name__}" for x in outcomes if not isinstance(x, str)))
        print(notes.confirmation_message, "Ada says no.")
        print(" ", await run(folder, model, notes.deny("I need it", by="ada")))


if __name__ == "__main__":
    asyncio.run(ask(Path(sys.argv[1])) if sys.argv[1:] else main())
