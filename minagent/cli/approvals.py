"""`minagent approvals`: the questions that wait for a person, in all sessions.

A question is named by the beginning of its fingerprint, which is of one question only
(call ids may come again in each session). A decision is taken by a run: it is stored,
the tool runs, and the model gets to read the result. So `approve` needs the tool,
which no session holds: `--tools`. Where it is missing, nothing is decided.

A question that an agent inside another one asks is stored in both sessions. It is
decided in the outer one, since only that run goes on with it.

This file knows nothing of how the session is drawn.
"""

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import typer
from pydantic import JsonValue

from minagent import (
    Agent,
    AgentResult,
    MinagentError,
    PendingToolCall,
    Session,
    SessionStore,
    Tool,
    ToolConfirmation,
    pending_tool_calls,
)
from minagent.approval import waiting_call
from minagent.cli.agents import (
    ToolNames,
    asking,
    made_model,
    model_of,
    named_tools,
    windows,
)
from minagent.cli.chat import login_name
from minagent.cli.live import Live
from minagent.cli.outcome import UsageError, complain, run, told
from minagent.cli.places import AsJson, Store, store_at, stored
from minagent.cli.questions import arguments_of
from minagent.cli.screen import Screen, at_work, cells, print_json
from minagent.cli.sessions import all_infos
from minagent.errors import CorruptSessionError
from minagent.events import plain, utc_now
from minagent.ledger import record_of

app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")

SHORT = 12
"""How many letters of a fingerprint are shown: enough to tell them apart."""

FEWEST = 4
"""With how many letters a question can be named: fewer would fit any that waits."""

QuestionId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help=f"As `approvals list` shows it; or its start, {FEWEST} letters or more.",
    ),
]
InSession = Annotated[
    str | None,
    typer.Option("--session", metavar="ID", help="Look in this session only."),
]
OtherModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="Who reads the result: offline, local, or claude-…. Without it, the model "
        "that wrote the newest reply.",
    ),
]
By = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Who decides; without it, your login name."),
]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A question, and the session that goes on with the answer."""

    session_id: str
    user_id: str | None
    pending: PendingToolCall

    @property
    def state(self) -> str:
        """Whether it can still be decided, and until when."""
        ends = self.pending.expires_at
        if ends is None:
            return "waits"
        return "expired" if ends <= utc_now() else f"until {_minute(ends)}"


@app.callback()
def group() -> None:
    """Questions that wait for a person: see and decide them."""


@app.command("list")
def list_(
    session: InSession = None, store: Store = None, as_json: AsJson = False
) -> None:
    """List the questions that wait, in all sessions.

    Example: minagent approvals list
    """
    with told():
        found, unread = run(_all(store_at(store), session))
        if as_json:
            print_json([_plain(each) for each in found])
        elif found:
            head = ["ID", "SESSION", "ASKED (UTC)", "STATE", "QUESTION"]
            Screen().rows([head, *(_row(each) for each in found)])
        elif not unread:
            complain("no question waits")
        _raise_first(unread)


@app.command()
def approve(
    question: QuestionId,
    tools: ToolNames = None,
    model: OtherModel = None,
    arguments: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Run it with these arguments instead."),
    ] = None,
    by: By = None,
    session: InSession = None,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Let a tool run, and the conversation go on.

    Example: minagent approvals approve 3fa94c --tools shop:refund
    """
    with told():
        who, edited = _text("--by", by or login_name()), _edited(arguments)
        taking = _Taking(question, session, tools or (), model, as_json)
        run(
            taking.take(
                store_at(store), lambda asked: asked.approve(by=who, arguments=edited)
            )
        )


@app.command()
def deny(
    question: QuestionId,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Why not; the model is told.")
    ] = None,
    tools: ToolNames = None,
    model: OtherModel = None,
    by: By = None,
    session: InSession = None,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Do not let a tool run; the model is told, and the conversation goes on.

    Example: minagent approvals deny 3fa94c --reason 'keep it'
    """
    with told():
        who, why = _text("--by", by or login_name()), _text("--reason", reason)
        taking = _Taking(question, session, tools or (), model, as_json)
        run(taking.take(store_at(store), lambda asked: asked.deny(why, by=who)))


def _text(option: str, typed: str | None) -> str | None:
    try:
        (typed or "").encode()
    except UnicodeEncodeError as error:  # bytes of another encoding than the terminal's
        raise UsageError(f"{option}: {typed!r} is no text: {error.reason}") from error
    return typed


def _edited(arguments: str | None) -> dict[str, JsonValue] | None:
    try:
        return None if arguments is None else arguments_of(arguments)
    except ValueError as error:
        raise UsageError(f"--arguments: {error}") from error


# --- Finding a question -------------------------------------------------------


async def _all(
    sessions: SessionStore, session_id: str | None
) -> tuple[list[Waiting], list[CorruptSessionError]]:
    async with sessions:
        return await _waiting(sessions, session_id)


async def _waiting(
    sessions: SessionStore, session_id: str | None
) -> tuple[list[Waiting], list[CorruptSessionError]]:
    """Return the questions that wait, the oldest first; and what cannot be read."""
    found: list[Waiting] = []
    unread: list[CorruptSessionError] = []
    if session_id is not None:
        return _in(await stored(sessions, session_id)), unread
    infos = await all_infos(sessions, None)
    with at_work("Looking into sessions", len(infos)) as work:
        for info in infos:
            try:
                session = await sessions.get(info.session_id)
                found += _in(session) if session else []
            except CorruptSessionError as error:
                unread.append(error)  # the others are no worse for it
            work.step()
    outer = [each for each in found if not _is_inside(each, found)]
    return sorted(outer, key=lambda each: each.pending.asked_at), unread


def _in(session: Session) -> list[Waiting]:
    pending = pending_tool_calls(session)
    return [Waiting(session.session_id, session.user_id, each) for each in pending]


def _is_inside(one: Waiting, found: Sequence[Waiting]) -> bool:
    """Whether a question has come up from here to the session around this one."""
    return any(
        each.pending.fingerprint == one.pending.fingerprint
        and len(each.pending.path) > len(one.pending.path)
        for each in found
    )


async def _one(sessions: SessionStore, start: str, session_id: str | None) -> Waiting:
    """Return the one question whose id begins so.

    Raises:
        MinagentError: There is none, or there are several.
    """
    found, unread = await _waiting(sessions, session_id)
    fitting = [each for each in found if each.pending.fingerprint.startswith(start)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        where = ", ".join(sorted({repr(each.session_id) for each in fitting}))
        raise MinagentError(
            problem=f"{start!r} is the start of {len(fitting)} questions, in {where}; "
            "type more of it, or --session"
        )
    _raise_first(unread)
    raise MinagentError(
        problem=f"no question {start!r} waits: it was decided or closed, or never asked"
    )


def _raise_first(unread: Sequence[CorruptSessionError]) -> None:
    for error in unread[1:]:
        complain(str(error))
    if unread:
        raise unread[0]


# --- Taking a decision --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Taking:
    """What `approve` and `deny` were told: about which question, and with what."""

    question: str
    session_id: str | None
    tools: Sequence[str]
    model: str | None
    as_json: bool

    async def take(
        self,
        sessions: SessionStore,
        decide: Callable[[PendingToolCall], ToolConfirmation],
    ) -> None:
        """Run the agent with the decision, and show what comes of it.

        Raises:
            UsageError: No question is named so, or what is needed to go on is not.
            MinagentError: The decision could not be taken, or the run not go on.
        """
        if len(self.question.strip()) < FEWEST:
            raise UsageError(
                f"{self.question!r} names no question: type at least {FEWEST} letters "
                "of it, as `approvals list` shows them"
            )
        async with AsyncExitStack() as opened:
            await opened.enter_async_context(sessions)
            found = await _one(sessions, self.question, self.session_id)
            session = await stored(sessions, found.session_id)
            decision, tools = decide(found.pending), named_tools(self.tools)
            _check_tool(session, found.pending, decision, tools)
            name = self.model or _model_of(session)
            model = made_model(name)
            if hasattr(model, "aclose"):
                opened.push_async_callback(model.aclose)
            agent = Agent(
                model,
                tools=tools,
                session_manager=sessions,
                before_llm_callbacks=windows(name),
            )
            live = Live(Screen(), agent.name)
            live.skip(session)
            with asking(name):
                async with agent.stream(
                    session_id=found.session_id, tool_confirmations=[decision]
                ) as stream:
                    async for item in stream:
                        if not self.as_json:
                            live.show(item)
        if self.as_json:
            print_json(_told(stream.result))
        else:
            live.catch_up(stream.result.context.session)


def _model_of(session: Session) -> str:
    name = model_of(session)
    if name is None:
        raise UsageError("no model has signed this session; say which: --model")
    return name


def _check_tool(
    session: Session,
    pending: PendingToolCall,
    decision: ToolConfirmation,
    tools: Sequence[Tool[..., Any]],
) -> None:
    """Check that there is what the decision needs, before it is taken.

    Raises:
        UsageError: The tool is not there. The run would take the decision all the same,
            and the call would come to an error.
    """
    if not (decision.approved or pending.path):
        return  # a call of the session itself is denied without its tool
    record = record_of(session.events, waiting_call(pending))
    name = record.call.name if record else pending.name
    if name not in {each.name for each in tools}:
        raise UsageError(
            f"nothing was decided: the tool {name!r} is needed to go on; name it, such "
            f"as --tools shop:{name if name.isidentifier() else 'tools'}"
        )


def _told(result: AgentResult) -> dict[str, object]:
    return {
        "session_id": result.session_id,
        "status": result.status,
        "output": result.output,
        "pending": [each.fingerprint for each in result.pending_tool_calls],
    }


def _plain(waiting: Waiting) -> dict[str, object]:
    asked = waiting.pending
    return {
        "id": asked.fingerprint,
        "session_id": waiting.session_id,
        "user_id": waiting.user_id,
        "state": waiting.state,
        **plain(asked),
    }


def _row(waiting: Waiting) -> list[str]:
    asked = waiting.pending
    name, question = asked.fingerprint[:SHORT], asked.confirmation_message
    at = _minute(asked.asked_at)
    return cells([name, waiting.session_id, at, waiting.state, question])


def _minute(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M}"
