"""`minagent sessions`: what is stored, and what can be done with it.

Each command opens the store, does one thing, and closes it. `list` and `show` only
read; `delete` and `prune` remove for good, so they ask first.

This file knows nothing of models.
"""

import io
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, TextIO

import typer

from minagent import MinagentError, Session, SessionInfo
from minagent.cli.exports import Exported, from_jsonl, jsonl, markdown, session_cards
from minagent.cli.outcome import UsageError, complain, run, told
from minagent.cli.pages import html
from minagent.cli.places import (
    AsJson,
    SessionId,
    Store,
    Yes,
    store_at,
    stored,
    user_option,
)
from minagent.cli.questions import confirm
from minagent.cli.screen import Screen, at_work, cells, print_json
from minagent.events import load_json, utc_now
from minagent.foreign import Foreign, is_foreign, read_sessions
from minagent.store import SessionStore
from minagent.timetravel import fork as forked
from minagent.timetravel import rewind as rewound
from minagent.timetravel import undo

app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")

PAGE = 1_000
"""How many sessions to ask a store for at once."""

OLDEST = timedelta(days=365_000)
"""What no age is beyond: not long before that, there are no dates any more."""

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@app.callback()
def group() -> None:
    """Stored conversations: see, copy, move and delete them."""


@app.command("list")
def list_(
    user: Annotated[str | None, user_option("Only those of this user.")] = None,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """List the sessions, in the order of their ids.

    Example: minagent sessions list --user ada --json
    """
    with told():
        found = run(_list(store_at(store), user))
        if as_json:
            print_json([_plain(info) for info in found])
        elif found:
            head = ["SESSION", "USER", "EVENTS", "UPDATED (UTC)"]
            Screen().rows([head, *(_row(info) for info in found)])
        else:
            print("No sessions.", file=sys.stderr)


@app.command()
def show(
    session_id: SessionId,
    ids: Annotated[
        bool, typer.Option("--ids", help="Name the events: for fork and rewind.")
    ] = False,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Draw a conversation, from what is stored of it.

    Example: minagent sessions show ada --ids
    """
    with told():
        session = run(_stored(store_at(store), session_id))
        if as_json:
            print_json(load_json(session.to_json()))
            return
        screen, drawn = Screen(), session_cards(session)
        for card in drawn:
            screen.card(card, more=card.event_ids[-1] if ids and card.event_ids else "")
        if not drawn:
            print("Nothing is said in it.", file=sys.stderr)


@app.command()
def export(
    session_id: SessionId,
    form: Annotated[
        Literal["jsonl", "md", "html"],
        typer.Option(
            "--format",
            help="jsonl: all of it, for import; md and html: what people see of it.",
        ),
    ] = "jsonl",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file; without it, here.")
    ] = None,
    store: Store = None,
) -> None:
    """Write a session as lines of JSON, as Markdown, or as a page to mail.

    The page is one file that needs no network. Sessions inside this one, of agents that
    it has delegated to, are exported by their own ids.

    Example: minagent sessions export ada --format html -o ada.html
    """
    with told():
        session = run(_stored(store_at(store), session_id))
        parts = {"jsonl": jsonl, "md": markdown, "html": html}[form](session)
        between = "\n" if form == "md" else ""
        with _written(output) as file:
            for number, part in enumerate(parts):
                file.write(f"{between if number else ''}{part}\n")


@app.command("import")
def import_(
    file: Annotated[
        Path,
        typer.Argument(
            help="What `export` wrote, as jsonl (- for what is piped); or a folder or "
            "file with sessions of Strands or OpenAI Agents."
        ),
    ],
    as_: Annotated[
        str | None, typer.Option("--as", metavar="ID", help="Another id for it.")
    ] = None,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Take back what was exported as jsonl, or what another framework has stored.

    Of our own: the same log, state and owner. A question that waits in it waits here,
    too: decide it in one place only.

    Of Strands: a folder of its session managers, or a snapshot. Of OpenAI Agents: the
    file of a SQLiteSession. What has no place here is named, a line each, and most of
    it is kept in notes; a tool that was not done there is not run.

    Example: minagent sessions import ada.jsonl --as ada-2
    """
    with told():
        found = [(each.session_id, each) for each in _exported(file)]
        if as_ is not None and len(found) > 1:
            raise UsageError(f"--as: there are {len(found)} sessions in {file.name}")
        if as_ is not None:
            found = [(as_, each) for _, each in found]
        made = run(_import(store_at(store), found))
        unread = [e.unread if isinstance(e, Foreign) else () for _, e in found]
        if as_json:
            print_json(
                [
                    {**_brief(session), "unread": [*lines]}
                    for session, lines in zip(made, unread, strict=True)
                ]
            )
            return
        screen = Screen()
        for session, lines in zip(made, unread, strict=True):
            for line in lines:
                complain(f"{session.session_id}: not read: {line}")
            count = f"{len(session.events):,} events"
            screen.line(f"Imported {session.session_id}: {count}.")


@app.command()
def fork(
    session_id: SessionId,
    new_id: Annotated[str, typer.Argument(metavar="NEW", help="The id of the copy.")],
    at: Annotated[
        str | None,
        typer.Option(metavar="EVENT", help="The last event of the copy: show --ids."),
    ] = None,
    user: Annotated[str | None, user_option("Whose the copy is.")] = None,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Make a new session that begins as another one stands.

    Example: minagent sessions fork ada ada-2
    """

    async def work(sessions: SessionStore) -> Session:
        async with sessions:
            await stored(sessions, session_id)
            return await forked(sessions, session_id, new_id, at=at, user_id=user)

    with told():
        copy = run(work(store_at(store)))
        if as_json:
            print_json(_brief(copy))
            return
        Screen().line(
            f"{new_id} begins as {session_id} stood: {len(copy.events)} events."
        )


@app.command()
def rewind(
    session_id: SessionId,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="EVENT",
            help="The last event that is to count (show --ids), or `start`. Without "
            "it: the one before the last thing that the user said.",
        ),
    ] = None,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Go back in a session: by a turn, or to any event. Nothing is erased.

    Example: minagent sessions rewind ada
    """

    async def work(sessions: SessionStore) -> Session:
        async with sessions:
            await stored(sessions, session_id)
            if to is None:
                return await undo(sessions, session_id)
            place = None if to == "start" else to
            return await rewound(sessions, session_id, to=place)

    with told():
        session = run(work(store_at(store)))
        if as_json:
            print_json(_brief(session))
            return
        cards = session_cards(session)
        Screen().line(f"{session_id} went back: {len(cards)} cards of it count.")


@app.command()
def delete(
    session_ids: Annotated[
        list[str], typer.Argument(metavar="SESSION...", help="The ids of the sessions.")
    ],
    yes: Yes = False,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Delete sessions and those inside them, for good.

    Example: minagent sessions delete ada bob --yes
    """

    async def work(sessions: SessionStore) -> list[str]:
        async with sessions:
            return [each for each in session_ids if not await sessions.delete(each)]

    with told():
        confirm(f"Delete {', '.join(session_ids)} for good?", yes)
        missing = run(work(store_at(store)))
        if as_json:
            gone = [each for each in session_ids if each not in missing]
            print_json({"deleted": gone, "missing": missing})
        if missing:
            known = ", ".join(map(repr, missing))
            raise MinagentError(problem=f"there is no session {known} in this store")


@app.command()
def prune(
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="Such as 30d, 12h, 8w.")
    ],
    pending: Annotated[
        bool,
        typer.Option("--pending", help="Also those in which a call has no result."),
    ] = False,
    yes: Yes = False,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Delete the sessions in which nothing has happened for long.

    Example: minagent sessions prune --older-than 30d --yes
    """

    async def work(sessions: SessionStore, age: timedelta) -> tuple[str, ...]:
        async with sessions:
            with at_work("Pruning"):
                return await sessions.prune(
                    older_than=utc_now() - age, pending="delete" if pending else "keep"
                )

    with told():
        age = age_of(older_than)
        confirm(f"Delete all sessions without news for {older_than}?", yes)
        gone = run(work(store_at(store), age))
        if as_json:
            print_json([*gone])
            return
        screen = Screen()
        for each in gone:
            screen.line(each)
        print(f"{len(gone)} sessions deleted.", file=sys.stderr)


def age_of(text: str) -> timedelta:
    """Return an age: a number, and `m`, `h`, `d` or `w` behind it.

    Raises:
        UsageError: The text is none.
    """
    found = re.fullmatch(r"(\d{1,6})([mhdw])", text.strip())
    age = timedelta(**{_UNITS[found[2]]: int(found[1])}) if found else None
    if age is None or age > OLDEST:
        raise UsageError(f"--older-than: {text!r} is no age, such as 30d, 12h or 8w")
    return age


# --- What they do -------------------------------------------------------------


async def all_infos(sessions: SessionStore, user_id: str | None) -> list[SessionInfo]:
    """Return what is known of all sessions."""
    found: list[SessionInfo] = []
    after: str | None = None
    while page := await sessions.list(user_id=user_id, after=after, limit=PAGE):
        found += page
        after = page[-1].session_id
    return found


async def _list(sessions: SessionStore, user_id: str | None) -> list[SessionInfo]:
    async with sessions:
        with at_work("Reading the list"):
            return await all_infos(sessions, user_id)


async def _stored(sessions: SessionStore, session_id: str) -> Session:
    async with sessions:
        with at_work("Reading the session"):
            return await stored(sessions, session_id)


def _exported(file: Path) -> Sequence[Exported | Foreign]:
    if str(file) != "-" and is_foreign(file):
        return read_sessions(file)
    return [from_jsonl(_lines(file), file.name)]


async def _import(
    sessions: SessionStore, found: Sequence[tuple[str, Exported | Foreign]]
) -> list[Session]:
    made = []
    async with sessions:
        with at_work("Importing"):
            # A taken id is found before anything is made. Where a save fails below,
            # the sessions before that one stay: whole, and as they were imported.
            for session_id, _ in found:
                if await sessions.get(session_id):
                    problem = f"there is a session {session_id!r} already; use --as"
                    raise MinagentError(problem=problem)
            for session_id, each in found:
                session = await sessions.create(session_id, each.user_id)
                session.append(*each.events)
                session.state.update(each.state)
                await sessions.save(session)
                made.append(session)
    return made


def _lines(file: Path) -> list[str]:
    """Return the lines of a file; they end with a line feed, and with nothing else."""
    data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    try:
        return data.decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise MinagentError(problem=f"{file.name} is no text: {error}") from error


@contextmanager
def _written(file: Path | None) -> Iterator[TextIO]:
    if file is None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")  # whatever the terminal has
        yield sys.stdout
        return
    with file.open("w", encoding="utf-8", newline="\n") as opened:
        yield opened


def _brief(session: Session) -> dict[str, object]:
    return {
        "session_id": session.session_id,
        "user_id": session.user_id,
        "version": session.version,
        "event_count": len(session.events),
    }


def _plain(info: SessionInfo) -> dict[str, object]:
    return {
        "session_id": info.session_id,
        "user_id": info.user_id,
        "version": info.version,
        "event_count": info.event_count,
        "created_at": info.created_at.isoformat(),
        "updated_at": info.updated_at.isoformat(),
    }


def _row(info: SessionInfo) -> list[str]:
    updated = f"{info.updated_at:%Y-%m-%d %H:%M}"
    return cells([info.session_id, info.user_id, info.event_count, updated])
