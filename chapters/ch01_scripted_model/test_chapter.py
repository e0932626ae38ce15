"""What grades exercise 01."""

from types import ModuleType

from minagent import Agent, Event, Message, ModelRequest, TextDelta
from minagent.events import ContentItem
from minagent.model import Delta


async def test_it_says_back_what_the_user_said(work: ModuleType) -> None:
    result = await Agent(work.EchoModel()).run("Hello.")

    assert result.output == "1: Hello.", (
        'the reply to "Hello." in a new conversation must be "1: Hello."'
    )


async def test_it_counts_the_messages_of_the_user_only(work: ModuleType) -> None:
    agent = Agent(work.EchoModel())

    first = await agent.run("Hello.")
    second = await agent.run("Again.", context=first.context)

    assert second.output == "2: Again.", (
        "the second message of a conversation must be number 2: count the messages of "
        "the user in the request, and not those of the assistant"
    )


async def test_two_messages_of_one_turn_are_two(work: ModuleType) -> None:
    """Who writes twice before an answer comes has said two things in one turn."""
    said = [Message(role="user", content=text) for text in ("Hello.", "Again.")]
    request = ModelRequest(None, [Event(author="user", content=(x,)) for x in said])
    assert len(request.turns) == 1

    response = await work.EchoModel().generate(request, lambda delta: None)

    assert response.text == "2: Again.", (
        "two messages in one turn are two: count the messages of the user, and not the "
        "turns that they stand in"
    )


async def test_it_keeps_nothing_between_conversations(work: ModuleType) -> None:
    agent = Agent(work.EchoModel())

    await agent.run("Hello.")
    other = await agent.run("Good morning.")

    assert other.output == "1: Good morning.", (
        "another conversation must begin at 1: the model must keep nothing itself"
    )


async def test_instructions_are_no_message(work: ModuleType) -> None:
    result = await Agent(work.EchoModel(), instructions="Be brief.").run("Hello.")

    assert result.output == "1: Hello.", "the instructions must not be counted"


async def test_what_it_emits_is_what_it_says(work: ModuleType) -> None:
    emitted: list[Delta | ContentItem] = []
    message = Message(role="user", content="Hello.")
    request = ModelRequest(None, [Event(author="user", content=(message,))])

    response = await work.EchoModel().generate(request, emitted.append)

    pieces = [each.text for each in emitted if isinstance(each, TextDelta)]
    assert "".join(pieces) == response.text == "1: Hello.", (
        "the pieces that are emitted must be the reply, put together"
    )
