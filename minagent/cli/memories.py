"""`minagent memory`: what is remembered of users, for their next conversations.

`minagent chat --memory URL --user ID` recalls from the same place.

This file knows nothing of sessions.
"""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from minagent.cli.outcome import UsageError, run, told
from minagent.cli.places import AsJson, MemoryPlace, Yes, memory_at, user_option
from minagent.cli.questions import confirm
from minagent.cli.screen import Screen, at_work, cells, print_json
from minagent.errors import MinagentError
from minagent.memory import Memory, MemoryHit, MemoryManager

app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")

PAGE = 1_000

User = Annotated[str, user_option("Whose memories.")]
OfSession = Annotated[
    str | None,
    typer.Option("--session", metavar="ID", help="Only those of this conversation."),
]


@app.callback()
def group() -> None:
    """What is remembered of users, for their next conversations."""


@app.command()
def add(
    text: Annotated[str, typer.Argument(help="What to remember, in words.")],
    user: User,
    memory: MemoryPlace = None,
    as_json: AsJson = False,
) -> None:
    """Remember a text.

    Example: minagent memory add 'My kayak is red.' --user ann
    """

    async def work(memories: MemoryManager) -> Memory | None:
        async with memories:
            return await memories.add(_said(text), user_id=user, author="user")

    with told():
        added = run(work(memory_at(memory)))
        assert added is not None  # only of an event that was deleted there is none
        if as_json:
            print_json(added.model_dump(mode="json"))
        else:
            Screen().line(f"Remembered as {added.memory_id}.")


@app.command()
def search(
    query: Annotated[str, typer.Argument(help="A question, or some words.")],
    user: User,
    top: Annotated[int, typer.Option(min=1, help="How many at most.")] = 5,
    memory: MemoryPlace = None,
    as_json: AsJson = False,
) -> None:
    """Find what helps with a question, the best first.

    Example: minagent memory search 'What is my kayak?' --user ann
    """

    async def work(memories: MemoryManager) -> list[MemoryHit]:
        async with memories:
            return await memories.search(query, user_id=user, top_k=top)

    with told():
        hits = run(work(memory_at(memory)))
        if as_json:
            print_json([hit.model_dump(mode="json") for hit in hits])
        else:
            _show([hit.memory for hit in hits])


@app.command("list")
def list_(
    user: User,
    session: OfSession = None,
    memory: MemoryPlace = None,
    as_json: AsJson = False,
) -> None:
    """List what is remembered of a user, the oldest first.

    Example: minagent memory list --user ann
    """

    async def work(memories: MemoryManager) -> list[Memory]:
        found: list[Memory] = []
        async with memories:
            with at_work("Reading the list"):
                while page := await memories.list_memories(
                    user_id=user, session_id=session, limit=PAGE, offset=len(found)
                ):
                    found += page
        return found

    with told():
        found = run(work(memory_at(memory)))
        if as_json:
            print_json([each.model_dump(mode="json") for each in found])
        else:
            _show(found)


@app.command()
def forget(
    user: User,
    memory_ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MEMORY...]", help="Ids, as `list` shows them."),
    ] = None,
    session: OfSession = None,
    every: Annotated[
        bool, typer.Option("--all", help="All memories of this user.")
    ] = False,
    yes: Yes = False,
    memory: MemoryPlace = None,
    as_json: AsJson = False,
) -> None:
    """Forget for good: single memories, those of a conversation, or all of a user.

    Example: minagent memory forget --user ann --session monday --yes
    """
    ids = memory_ids or []

    async def work(memories: MemoryManager) -> tuple[int, list[str]]:
        async with memories:
            if not ids:
                return await memories.forget(user_id=user, session_id=session), []
            gone = {each: await memories.delete(each, user_id=user) for each in ids}
            return sum(gone.values()), [each for each in ids if not gone[each]]

    with told():
        if sum([bool(ids), session is not None, every]) != 1:
            raise UsageError("say what to forget: some ids, --session, or --all")
        if not ids:  # who names single ones knows how many they are
            what = "all memories" if every else f"what is remembered from {session}"
            confirm(f"Forget {what} of {user!r} for good?", yes)
        count, missing = run(work(memory_at(memory)))
        if as_json:
            print_json({"forgotten": count, "missing": missing})
        else:
            Screen().line(f"{count:,} forgotten.")
        if missing:
            known = ", ".join(map(repr, missing))
            raise MinagentError(problem=f"{user!r} has no memory {known}")


def _said(text: str) -> str:
    if not text.strip():
        raise UsageError("the text is blank; there is nothing to remember")
    return text


def _show(found: Sequence[Memory]) -> None:
    if not found:
        print("Nothing is remembered.", file=sys.stderr)
        return
    head = ["MEMORY", "SAID (UTC)", "BY", "SESSION", "TEXT"]
    Screen().rows([head, *(_row(each) for each in found)])


def _row(memory: Memory) -> list[str]:
    at, text = f"{memory.created_at:%Y-%m-%d %H:%M}", " ".join(memory.text.split())
    return cells([memory.memory_id, at, memory.author, memory.session_id, text])
