"""A solution of exercise 01."""

from minagent import Message, ModelRequest, ModelResponse, TextDelta
from minagent.model import Emit


class EchoModel:
    """Says back what the user said last, with the number of the user's messages."""

    async def generate(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Return the reply to a request."""
        items = [item for turn in request.turns for item in turn.content]
        messages = [item for item in items if isinstance(item, Message)]
        said = [each.content for each in messages if each.role == "user"]
        text = f"{len(said)}: {said[-1]}"
        emit(TextDelta(text))
        return ModelResponse((Message(role="assistant", content=text),))
