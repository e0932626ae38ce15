"""Grades exercise 05: `pytest chapters/ch05_two_runs --mine`."""

from datetime import UTC, datetime, timedelta
from types import ModuleType

from minagent import Event, InMemorySessionManager, Message, Note, Session, SessionStore

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


async def stored(
    store: SessionStore,
    session_id: str,
    *texts: str,
    user_id: str | None = "ann",
    hour: int = 0,
) -> Session:
    """Store a session in which a user has said this, at an hour after noon."""
    session = await store.create(session_id, user_id)
    for text in texts:
        said = Message(role="user", content=text)
        at = NOON + timedelta(hours=hour)
        session.append(Event(author="user", content=(said,), timestamp=at))
    await store.save(session)
    return session


async def test_a_line_has_the_id_and_the_first_words(work: ModuleType) -> None:
    async with InMemorySessionManager() as store:
        await stored(store, "tea", "How long does tea draw?", "And green tea?")

        chats = await work.chats_of(store, "ann")

    assert chats == [work.Chat("tea", "How long does tea draw?")], (
        "each line must be a Chat with the session's id, and what the user said first"
    )


async def test_a_user_without_sessions_has_an_empty_list(work: ModuleType) -> None:
    async with InMemorySessionManager() as store:
        await stored(store, "tea", "Hello.")

        chats = await work.chats_of(store, "bob")

    assert chats == [], "a user who has no sessions must get an empty list"


async def test_only_the_users_own_sessions_are_listed(work: ModuleType) -> None:
    async with InMemorySessionManager() as store:
        await stored(store, "ann's", "Hello.")
        await stored(store, "bob's", "Hello.", user_id="bob")
        await stored(store, "nobody's", "Hello.", user_id=None)

        chats = await work.chats_of(store, "ann")

    assert [each.session_id for each in chats] == ["ann's"], (
        "sessions of another user, or of none, must not be in the list"
    )


async def test_the_one_used_last_comes_first(work: ModuleType) -> None:
    async with InMemorySessionManager() as store:
        for session_id, hour in (("a", 2), ("b", 9), ("c", 1), ("d", 5)):
            await stored(store, session_id, "Hello.", hour=hour)

        chats = await work.chats_of(store, "ann")

    assert [each.session_id for each in chats] == ["b", "d", "a", "c"], (
        "the session with the newest event (updated_at) must come first"
    )


async def test_all_pages_are_read(work: ModuleType) -> None:
    async with InMemorySessionManager() as store:
        for number in range(7):
            await stored(store, f"chat {number}", "Hello.", hour=number)

        for page_size in (1, 2, 7, 100):
            chats = await work.chats_of(store, "ann", page_size=page_size)

            assert [each.session_id for each in chats] == [
                f"chat {number}" for number in reversed(range(7))
            ], f"with page_size={page_size}, all 7 sessions must be listed once"


async def test_a_long_text_is_cut(work: ModuleType) -> None:
    async with InMemorySessionManager() as store:
        await stored(store, "long", "abcde" * 20)

        [chat] = await work.chats_of(store, "ann")

    assert chat.title == "abcde" * 8, "a title must have at most 40 letters"


async def test_a_session_without_words_is_a_new_chat(work: ModuleType) -> None:
    async with InMemorySessionManager() as store:
        await store.create("empty", "ann")

        [chat] = await work.chats_of(store, "ann")

    assert chat.title == "New chat", (
        "a session in which the user has said nothing must have the title NEW_CHAT"
    )


async def test_the_title_is_what_the_user_said(work: ModuleType) -> None:
    async with InMemorySessionManager() as store:
        session = await store.create("greeted", "ann")
        greeting = Message(role="assistant", content="Can I help you?")
        words = Message(role="user", content="Yes.")
        session.append(Event(author="assistant", content=(greeting,)))
        session.append(Event(author="user", content=(Note(kind="mood"), words)))
        await store.save(session)

        [chat] = await work.chats_of(store, "ann")

    assert chat.title == "Yes.", (
        "the title must be a Message of the role user, wherever it stands in the log"
    )


async def test_a_session_that_is_gone_is_left_out(work: ModuleType) -> None:
    class Leaky(InMemorySessionManager):
        async def get(self, session_id: str) -> Session | None:
            return None if session_id == "gone" else await super().get(session_id)

    async with Leaky() as store:
        await stored(store, "gone", "Hello.")
        await stored(store, "here", "Hello.")

        chats = await work.chats_of(store, "ann")

    assert [each.session_id for each in chats] == ["here"], (
        "a session that was deleted after it was listed must be left out"
    )


async def test_nothing_that_is_stored_changes(work: ModuleType) -> None:
    async with InMemorySessionManager() as store:
        before = await stored(store, "tea", "Hello.")

        await work.chats_of(store, "ann")
        await work.chats_of(store, "bob")

        after = await store.get("tea")
        assert after is not None, "to list a session must not delete it"
        assert after.to_json() == before.to_json(), "to list must change nothing"
        assert len(await store.list()) == 1, "to list must not create a session"
