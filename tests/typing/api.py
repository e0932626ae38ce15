"""What a type checker says of programs that use minagent. Never run, only checked.

A line with an ignore is a mistake that the checker must find: it complains of an
ignore that nothing needs.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Never, assert_type

from pydantic import BaseModel, JsonValue
from starlette.applications import Starlette
from starlette.requests import Request

from minagent import (
    Agent,
    AgentResult,
    AgentStream,
    ApprovalError,
    BaseSessionManager,
    ContentItem,
    ErasurePendingError,
    Event,
    EventLog,
    ExecutionContext,
    InMemorySessionManager,
    MaxStepsExceededError,
    Media,
    Message,
    MinagentError,
    Model,
    ModelRequest,
    ModelResponse,
    NewerDataError,
    Note,
    NotSerializableError,
    Opaque,
    Paused,
    PendingToolCall,
    Progress,
    Reasoning,
    ReasoningDelta,
    Session,
    SessionConflictError,
    SessionError,
    SessionInfo,
    SessionManager,
    SessionOpened,
    SessionStore,
    StoreUnavailableError,
    TextDelta,
    Tool,
    ToolCall,
    ToolConfirmation,
    ToolInputDelta,
    ToolResult,
    ToolSpec,
    Turn,
    UnknownEventError,
    Usage,
    pending_tool_calls,
    tool,
)
from minagent.cards import Card, NoteCard, cards, render_text
from minagent.errors import KeyTakenError
from minagent.memory import (
    Excerpt,
    InMemoryMemoryManager,
    Memory,
    MemoryHit,
    MemoryManager,
    SQLiteMemoryManager,
    bm25,
    embed,
    forget_tool,
    format_memories,
    recall,
    recall_tool,
    remember_tool,
    spoken_text,
)
from minagent.model import Emit
from minagent.models import ScriptedModel
from minagent.stores import (
    BlobSessionManager,
    EncryptedStorage,
    FolderStorage,
    MemoryStorage,
    PostgresSessionManager,
    S3Storage,
    SQLiteSessionManager,
    Storage,
    open_store,
)
from minagent.testing import (
    MemoryManagerContract,
    SessionManagerContract,
    SessionStoreContract,
    StorageContract,
)
from minagent.timetravel import (
    Checkpoint,
    checkpoint,
    checkpoints,
    fork,
    list_checkpoints,
    rewind,
    undo,
)
from minagent.web import Authenticate, Server, create_app

# --- Tools --------------------------------------------------------------------


@tool
def add(a: int, b: int = 0) -> int:
    """Add two numbers."""
    return a + b


assert_type(add(1, b=2), int)
assert_type(add.name, str)
assert_type(add.spec, ToolSpec)
add("1")  # type: ignore[arg-type]
add(1, c=2)  # type: ignore[call-arg]


@tool
async def fetch(url: str) -> bytes:
    """Fetch a page."""
    return url.encode()


@tool(
    name="rm",
    requires_confirmation=True,
    confirmation_message="Delete {path}?",
    expires_in=timedelta(days=1),
)
def delete_file(path: str, context: ExecutionContext) -> str:
    """Delete one file."""
    assert_type(context.state, dict[str, Any])
    assert_type(context.tool_call_id, str | None)
    assert_type(context.decisions, tuple[ToolConfirmation, ...])
    assert_type(context.session, Session)
    assert_type(context.execution_id, str)
    context.progress(f"Deleting {path}")
    return path


def needs_context(context: ExecutionContext) -> None:
    assert_type(delete_file("old.txt", context), str)
    delete_file("old.txt")  # type: ignore[call-arg]


def is_large(arguments: Mapping[str, JsonValue]) -> bool:
    return arguments.get("amount") != 1


@tool(requires_confirmation=is_large)
def pay(amount: int) -> None:
    """Pay."""


@tool(repeatable=True)
async def look(context: ExecutionContext) -> list[str | Media]:
    """Look around."""
    event = await context.record(Note(kind="seen", text="A cat."), author="look")
    assert_type(event, Event)
    return ["A cat.", Media(media_type="image/png", data="aGk=")]


@tool(resumable=True)
def inner(context: ExecutionContext) -> str:
    """Ask an agent inside."""
    raise Paused(pending_tool_calls(context.session))


async def call_them() -> None:
    assert_type(await fetch("https://example.org"), bytes)
    assert_type(pay(2), None)


tool(requires_confirmation="yes")  # type: ignore[call-overload]
tool(unknown_option=True)  # type: ignore[call-overload]

# --- Models -------------------------------------------------------------------


class Parrot:
    """A model needs no base class."""

    async def generate(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        assert_type(request.instructions, str | None)
        assert_type(request.events, Sequence[Event])
        assert_type(request.tools, tuple[ToolSpec, ...])
        assert_type(request.turns, tuple[Turn, ...])
        assert_type(request.turns[-1].content, tuple[ContentItem, ...])
        emit(TextDelta("Hel"))
        emit(ReasoningDelta("Hm"))
        emit(ToolInputDelta("call_1", "add", "{"))
        emit(Message(role="assistant", content="Hello."))
        return ModelResponse(
            (Message(role="assistant", content="Hello."),),
            stop_reason="end_turn",
            usage=Usage(input_tokens=1) + Usage(output_tokens=2),
            model="parrot-1",
        )


class Mute:
    """No model: it has no `generate`."""


parrot: Model = Parrot()
Agent(Mute())  # type: ignore[arg-type]

script = ScriptedModel(
    [
        "Hello.",
        ToolCall(name="add", arguments={"a": 1}),
        [Reasoning(content="Hm."), "Well.", ToolCall(name="look")],
        ModelResponse(stop_reason="refusal"),
        RuntimeError("the line is dead"),
        lambda request: f"{len(request.events)} events",
    ]
)

# --- Callbacks ----------------------------------------------------------------


def trim(context: ExecutionContext, request: ModelRequest) -> ModelRequest:
    return ModelRequest(None, request.events[-10:], request.tools)


async def remember(context: ExecutionContext, request: ModelRequest) -> None:
    await context.record(Note(kind="memory", text="Likes tea."))


def canned(context: ExecutionContext, request: ModelRequest) -> ModelResponse | None:
    return ModelResponse() if context.step > 5 else None


def guard(context: ExecutionContext, call: ToolCall) -> ToolResult | None:
    if call.name != "rm":
        return None
    return ToolResult(tool_call_id=call.tool_call_id, name=call.name, status="error")


async def slow_guard(context: ExecutionContext, call: ToolCall) -> None:
    assert_type(call.arguments, Mapping[str, JsonValue])


def shorten(context: ExecutionContext, result: ToolResult) -> ToolResult:
    return ToolResult(
        tool_call_id=result.tool_call_id,
        name=result.name,
        content=result.content[:100],
        details={"whole": result.content},
    )


async def audit(context: ExecutionContext, result: ToolResult) -> None:
    assert_type(result.media, tuple[Media, ...])


def watch(context: ExecutionContext, event: Event) -> None:
    print(event.author, event.timestamp)


async def watch_slowly(context: ExecutionContext, event: Event) -> None:
    await context.record(Note(kind="seen"))


def not_a_callback(context: ExecutionContext) -> None:
    pass


agent = Agent(
    parrot,
    name="parrot",
    instructions="Be brief.",
    tools=[add, fetch, delete_file, pay, look, inner],
    session_manager=InMemorySessionManager(),
    max_steps=5,
    before_llm_callbacks=[trim, remember, canned],
    before_tool_callbacks=[guard, slow_guard],
    after_tool_callbacks=[shorten, audit],
    on_event=watch_slowly,
    clock=lambda: datetime.now(UTC),
)
Agent(script, on_event=watch)
Agent(script, tools=[is_large])  # type: ignore[list-item]
Agent(script, before_tool_callbacks=[not_a_callback])  # type: ignore[list-item]
Agent(script, "Be brief.")  # type: ignore[call-arg]

# --- Runs ---------------------------------------------------------------------


async def runs() -> None:
    result = await agent.run("Hello.", session_id="ada", user_id="ann")
    assert_type(result, AgentResult)
    assert_type(result.output, Any)
    assert_type(result.status, Literal["complete", "pending_confirmation"])
    assert_type(result.pending_tool_calls, tuple[PendingToolCall, ...])
    assert_type(result.stop_reason, str | None)
    assert_type(result.session_id, str | None)
    assert_type(result.usage, Usage)
    assert_type(result.context, ExecutionContext)
    assert_type(result.context.events, tuple[Event, ...])
    result.output = "another"  # type: ignore[misc]
    result.status == "done"  # type: ignore[comparison-overlap]  # noqa: B015

    picture = Media(media_type="image/png", url="https://example.org/a.png")
    await agent.run([Message(role="user", content="Look:"), picture])
    await agent.run(context=result.context)
    await agent.run(session_id="ada")
    await agent.run([ToolCall(name="add")])  # type: ignore[list-item]
    await agent.run("Hello.", sesion_id="ada")  # type: ignore[call-arg]


async def streams() -> None:
    async with agent.stream("Hello.", session_id="ada") as stream:
        assert_type(stream, AgentStream)
        async for item in stream:
            match item:
                case SessionOpened():
                    assert_type(item.session_id, str | None)
                    assert_type(item.execution_id, str)
                case Event():
                    assert_type(item.content, tuple[ContentItem, ...])
                case TextDelta() | ReasoningDelta() | ToolInputDelta():
                    assert_type(item.text, str)
                case Progress():
                    assert_type(item.tool_call_id, str | None)
                case _:
                    assert_type(item, Never)
        assert_type(stream.result, AgentResult)
    async for _ in agent.stream("Hello."):
        pass


# --- Decisions ----------------------------------------------------------------


async def decisions(session: Session) -> None:
    made: list[ToolConfirmation] = []
    for pending in pending_tool_calls(session):
        assert_type(pending, PendingToolCall)
        assert_type(pending.confirmation_message, str)
        assert_type(pending.arguments, Mapping[str, JsonValue])
        assert_type(pending.expires_at, datetime | None)
        made.append(pending.approve(by="ada"))
        made.append(pending.approve(by="ada", arguments={"path": "b.txt"}))
        made.append(pending.deny("keep it", by="ada"))
        made.append(pending.answer("There is no such file."))
        pending.approve("ada")  # type: ignore[call-arg]
        pending.name = "add"  # type: ignore[misc]
    made.append(ToolConfirmation(tool_call_id="call_1", approved=True))
    await agent.run(session_id=session.session_id, tool_confirmations=made)


# --- Items and events ---------------------------------------------------------


def name_of(item: ContentItem) -> str:
    """Return a word for an item; the checker knows that these are all kinds."""
    match item:
        case Message():
            assert_type(item.role, Literal["user", "assistant"])
            return item.role
        case Media():
            return item.media_type
        case Reasoning():
            return item.signature or "a thought"
        case ToolCall():
            return item.name
        case ToolResult():
            return item.status
        case ToolConfirmation():
            return item.by or "somebody"
        case Note():
            return item.text or item.kind
        case Opaque():
            return str(item.block.get("type"))


def items(event: Event) -> None:
    assert_type(event.tool_calls, tuple[ToolCall, ...])
    assert_type(event.is_reply, bool)
    assert_type(event.usage, Usage | None)
    assert_type(Event.from_json(event.to_json()), Event)
    event.content[0] = Note(kind="x")  # type: ignore[index]
    event.author = "eve"  # type: ignore[misc]
    Message(role="system", content="Obey.")  # type: ignore[arg-type]
    Message("user", "Hello.")  # type: ignore[call-arg]
    Note(kind="mark", text=1)  # type: ignore[arg-type]
    ToolCall(name="add").arguments["a"] = 1  # type: ignore[index]


# --- Sessions and their managers ----------------------------------------------


class MySessionManager(SessionManager):
    """Three methods make a manager."""

    async def create(self, session_id: str, user_id: str | None = None) -> Session:
        return Session(session_id, user_id)

    async def get(self, session_id: str) -> Session | None:
        return Session.from_json("{}")

    async def save(self, session: Session) -> None:
        assert_type(session.events, EventLog)
        assert_type(session.unsaved, tuple[Event, ...])
        assert_type(session.version, int)
        assert_type(session.to_json(version=session.version + 1), str)
        session.mark_saved()


class Half(SessionManager):
    """One that lacks two methods cannot be made."""

    async def get(self, session_id: str) -> Session | None:
        return None


class Wrong(MySessionManager):
    """One whose method returns something else is found."""

    async def get(self, session_id: str) -> Event:  # type: ignore[override]
        return Event(author="x", content=())


Half()  # type: ignore[abstract]
Agent(script, session_manager=MySessionManager())


def by_the_books_name(manager: BaseSessionManager) -> SessionManager:
    return manager


class TestMine(SessionManagerContract):
    """The check that grades it."""

    def open_manager(self, tmp_path: Any) -> SessionManager:
        return MySessionManager()


async def sessions(manager: SessionManager) -> None:
    session = await manager.get_or_create("ada", user_id="ann")
    assert_type(session, Session)
    assert_type(await manager.get("ada"), Session | None)
    assert_type(session.user_id, str | None)
    assert_type(session.created_at, datetime)
    assert_type(session.events[0], Event)
    assert_type(session.events[1:], tuple[Event, ...])
    session.append(Event(author="ada", content=(Note(kind="mark"),)))
    session.state["count"] = 1
    session.session_id = "bob"  # type: ignore[misc]
    session.events = []  # type: ignore[misc, assignment]
    session.events.append(session.events[0])  # type: ignore[attr-defined]
    await manager.save(session)
    await manager.delete("ada")  # type: ignore[attr-defined]


async def stores() -> AsyncIterator[SessionInfo]:
    async with SQLiteSessionManager("sessions.db", durability="normal") as store:
        assert_type(store, SQLiteSessionManager)
        for info in await store.list(user_id="ann", limit=10):
            yield info
        assert_type(await store.delete("ada"), bool)
    kept: SessionStore = InMemorySessionManager()
    async with kept as entered:
        assert_type(await entered.list(), list[SessionInfo])
    SQLiteSessionManager("sessions.db", durability="none")  # type: ignore[arg-type]


async def deletions(store: SessionStore, session: Session) -> None:
    month_ago = datetime.now(UTC) - timedelta(days=30)
    assert_type(await store.prune(older_than=month_ago), tuple[str, ...])
    await store.prune(older_than=month_ago, pending="delete")
    assert_type(await store.delete("ada", seen=session), bool)
    event_id = session.events[0].event_id
    await store.redact("ada", event_id, "[redacted]")
    await store.erase()
    await store.prune(month_ago)  # type: ignore[call-arg]
    await store.prune(older_than=timedelta(days=30))  # type: ignore[arg-type]
    await store.prune(older_than=month_ago, pending="ask")  # type: ignore[arg-type]
    await store.delete("ada", session)  # type: ignore[call-arg]
    await store.redact("ada", event_id)  # type: ignore[call-arg]


# --- Stores by address, and storages ------------------------------------------

assert_type(open_store("sqlite:///chat.db"), SessionStore)
Agent(script, session_manager=open_store("memory:"))


class MyStorage(Storage):
    """Six verbs make a storage."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    async def create(self, key: str, data: bytes) -> None:
        if key in self.objects:
            raise KeyTakenError(key)
        self.objects[key] = data

    async def read(self, key: str) -> bytes | None:
        return self.objects.get(key)

    async def replace(self, key: str, data: bytes) -> None:
        self.objects[key] = data

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int | None = None
    ) -> "list[str]":
        return sorted(key for key in self.objects if key > (after or ""))[:limit]

    async def delete(self, key: str) -> None:
        self.objects.pop(key, None)

    async def aclose(self) -> None:
        pass


class HalfStorage(Storage):
    """One that lacks five verbs cannot be made."""

    async def read(self, key: str) -> bytes | None:
        return None


class WrongStorage(MyStorage):
    """One that keeps texts is found."""

    async def create(self, key: str, data: str) -> None:  # type: ignore[override]
        pass


HalfStorage()  # type: ignore[abstract]
kept_in: Sequence[Storage] = [
    MyStorage(),
    MemoryStorage(),
    FolderStorage("sessions", durability="normal"),
    S3Storage("bucket", prefix="chat", endpoint="http://localhost:9000", region="eu"),
    EncryptedStorage(MyStorage(), {"2026": bytes(32)}, use="2026"),
]
places: Sequence[SessionStore] = [
    BlobSessionManager(kept_in[0], cached_events=1_000),
    PostgresSessionManager("postgresql://localhost/chat", schema="agents"),
    PostgresSessionManager("dbname=chat", max_connections=2, cached_events=1_000),
]
BlobSessionManager("sessions")  # type: ignore[arg-type]
FolderStorage("sessions", "normal")  # type: ignore[call-arg]
S3Storage("bucket", "chat")  # type: ignore[call-arg]
EncryptedStorage(MyStorage(), {"2026": "secret"})  # type: ignore[dict-item]
EncryptedStorage(MyStorage())  # type: ignore[call-arg]
PostgresSessionManager()  # type: ignore[call-arg]


async def new_key(storage: EncryptedStorage) -> None:
    assert_type(await storage.reencrypt(), int)
    async with storage as entered:
        assert_type(entered, EncryptedStorage)


class TestMyStore(SessionStoreContract):
    """The check that grades a store."""

    def open_store(self, tmp_path: Any) -> SessionStore:
        return BlobSessionManager(MyStorage())


class TestMyStorage(StorageContract):
    """The check that grades a storage."""

    def open_storage(self, tmp_path: Any) -> Storage:
        return MyStorage()


class TestNoStore(SessionStoreContract):
    """A manager that cannot list and delete is no store."""

    def open_store(self, tmp_path: Any) -> SessionManager:  # type: ignore[override]
        return MySessionManager()


# --- Going back in time -------------------------------------------------------


def after_tools(context: ExecutionContext, event: Event) -> bool:
    return not event.is_reply


@tool
async def keep(context: ExecutionContext) -> str:
    """Keep the state."""
    assert_type(await checkpoint(context), str)
    return await checkpoint(context, "before lunch")


Agent(script, tools=[keep], on_event=checkpoints())
Agent(script, on_event=checkpoints(when=after_tools, label="tools"))
checkpoints(when=is_large)  # type: ignore[arg-type]
checkpoints(after_tools)  # type: ignore[call-arg]


async def travels(manager: SessionManager, session: Session) -> None:
    kept = list_checkpoints(session)
    assert_type(kept, tuple[Checkpoint, ...])
    assert_type(kept[-1].event_id, str)
    assert_type(kept[-1].label, str)
    assert_type(kept[-1].created_at, datetime)
    assert_type(await fork(manager, "ada", "ada-2"), Session)
    await fork(manager, "ada", "ada-3", at=kept[-1].event_id, user_id="bob")
    try:
        assert_type(await rewind(manager, "ada", to=kept[-1].event_id), Session)
        await rewind(manager, "ada", to=None)
        assert_type(await undo(manager, "ada"), Session)
    except UnknownEventError as error:
        assert_type(error.event_id, str)
    await rewind(manager, "ada")  # type: ignore[call-arg]
    await rewind(manager, "ada", to=kept[-1])  # type: ignore[arg-type]
    await fork(manager, "ada")  # type: ignore[call-arg]
    kept[-1].label = "lunch"  # type: ignore[misc]


# --- Memory -------------------------------------------------------------------


class MyMemoryManager(MemoryManager):
    """Five methods make a manager of memories."""

    async def add(
        self,
        text: str,
        *,
        user_id: str,
        session_id: str | None = None,
        event_id: str | None = None,
        author: str | None = None,
        created_at: datetime | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
    ) -> Memory | None:
        return None

    async def search(
        self,
        query: str,
        *,
        user_id: str,
        top_k: int = 5,
        exclude_session: str | None = None,
    ) -> list[MemoryHit]:
        found = await self.list_memories(user_id=user_id, limit=top_k)
        return [MemoryHit(memory=memory, score=1.0) for memory in found]

    async def list_memories(
        self,
        *,
        user_id: str,
        session_id: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[Memory]:
        now = datetime.now(UTC)
        return [Memory(memory_id="1", user_id=user_id, text="Tea.", created_at=now)]

    async def update(self, memory_id: str, text: str, *, user_id: str) -> bool:
        return False

    async def delete(self, memory_id: str, *, user_id: str) -> bool:
        return False


class HalfMemoryManager(MemoryManager):
    """One that lacks four methods cannot be made."""

    async def delete(self, memory_id: str, *, user_id: str) -> bool:
        return False


class CarelessMemoryManager(MyMemoryManager):
    """One that does not ask whose memory is meant is found."""

    async def delete(self, memory_id: str) -> bool:  # type: ignore[override]
        return True


class TestMyMemory(MemoryManagerContract):
    """The check that grades a manager of memories."""

    def open_manager(self, tmp_path: Any) -> MemoryManager:
        return MyMemoryManager()


HalfMemoryManager()  # type: ignore[abstract]


def whole_session(session: Session) -> list[Excerpt]:
    texts = [excerpt.text for excerpt in spoken_text(session)]
    return [Excerpt(text="\n".join(texts), author="user", metadata={"count": 1})]


async def by_a_model(session: Session) -> Sequence[Excerpt]:
    return whole_session(session)


def shortest_first(query: str, texts: Sequence[str]) -> list[float]:
    return [1 / len(text) for text in texts]


async def memories(result: AgentResult) -> None:
    async with SQLiteMemoryManager("memory.db", embed=embed) as memory:
        assert_type(memory, SQLiteMemoryManager)
        session = result.context.session
        assert_type(await memory.add_session(session), list[Memory])
        await memory.add_session(session, select=whole_session)
        await memory.add_session(session, select=by_a_model)
        await memory.add_session(session, select=len)  # type: ignore[arg-type]
        said = datetime.now(UTC)
        added = await memory.add("I like tea.", user_id="ann", created_at=said)
        assert_type(added, Memory | None)
        found = await memory.search("tea?", user_id="ann", exclude_session="ada")
        assert_type(found, list[MemoryHit])
        assert_type(found[0].score, float)
        assert_type(found[0].memory.session_id, str | None)
        assert_type(found[0].memory.metadata, Mapping[str, JsonValue])
        assert_type(format_memories(found), str)
        known = await memory.list_memories(user_id="ann", limit=10)
        assert_type(known, list[Memory])
        try:
            assert_type(await memory.delete(known[0].memory_id, user_id="ann"), bool)
            await memory.update(known[0].memory_id, "I like coffee.", user_id="ann")
            assert_type(await memory.forget(user_id="ann", session_id="ada"), int)
        except ErasurePendingError as error:
            assert_type(error.place, str)
            await memory.erase()
        await memory.search("tea?")  # type: ignore[call-arg]
        await memory.search("tea?", "ann")  # type: ignore[call-arg]
        await memory.delete(known[0].memory_id)  # type: ignore[call-arg]
        known[0].text = "I like gin."  # type: ignore[misc]


in_memory = InMemoryMemoryManager(score=shortest_first)
InMemoryMemoryManager(score=bm25)
InMemoryMemoryManager(score=len)  # type: ignore[arg-type]
SQLiteMemoryManager("memory.db", author_weight=1.0, durability="full")
SQLiteMemoryManager("memory.db", durability="none")  # type: ignore[arg-type]
SQLiteMemoryManager("memory.db", embed=len)  # type: ignore[arg-type]
assert_type(embed(["tea"]), list[list[float]])
Agent(
    script,
    tools=[recall_tool(in_memory), remember_tool(in_memory), forget_tool(in_memory)],
    before_llm_callbacks=[recall(in_memory, top_k=3)],
)
Agent(script, tools=[recall(in_memory)])  # type: ignore[list-item]
recall(InMemorySessionManager())  # type: ignore[arg-type]


# --- Cards --------------------------------------------------------------------


def shown(session: Session) -> str:
    drawn = cards(session.events, pending_tool_calls(session))
    assert_type(drawn, list[Card])
    for card in drawn:
        if isinstance(card, NoteCard):
            assert_type(card.text, str | None)
            assert_type(card.entries, tuple[str, ...])
        assert_type(card.event_ids, tuple[str, ...])
    return render_text(drawn, width=72)


# --- The web ------------------------------------------------------------------


def by_header(request: Request) -> str | None:
    return request.headers.get("x-user")


async def serve(agent: Agent, memory: MemoryManager) -> None:
    login: Authenticate = by_header
    app = create_app(agent, authenticate=login, memory=memory, hosts=["chat.example"])
    assert_type(app, Starlette)
    await Server(app, host="127.0.0.1", port=0).serve()
    create_app(agent, on_disconnect="stop")  # type: ignore[arg-type]
    create_app(agent, authenticate=lambda request: 7)  # type: ignore[arg-type, return-value]
    create_app(agent, memory)  # type: ignore[arg-type, call-arg]


# --- Errors -------------------------------------------------------------------


async def errors(manager: SessionManager, session: Session) -> None:
    try:
        await manager.save(session)
    except SessionConflictError as error:
        assert_type(error.session_id, str)
        assert_type(error.unsaved, tuple[Any, ...])
    except SessionError as error:
        assert_type(error.session_id, str)
    except MaxStepsExceededError as error:
        assert_type(error.session_id, str | None)
        assert_type(error.max_steps, int)
    except ApprovalError as error:
        assert_type(error.tool_call_id, str)
    except NotSerializableError as error:
        assert_type(error.path, str)
    except NewerDataError as error:
        assert_type(error.subject, str)
    except StoreUnavailableError as error:
        assert_type(error.place, str)
    except MinagentError:
        raise


# --- Things that are given on -------------------------------------------------


class Weather(BaseModel):
    """What a tool may return."""

    degrees: float


@tool
def weather(city: str) -> Weather:
    """Say how warm it is."""
    return Weather(degrees=len(city))


assert_type(weather("Rome"), Weather)
toolbox: Sequence[Tool[..., Any]] = [add, weather, fetch]
