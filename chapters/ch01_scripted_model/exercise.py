"""Exercise 01: write a model."""

from minagent import ModelRequest, ModelResponse
from minagent.model import Emit


class EchoModel:
    """Says back what the user said last, with the number of the user's messages.

    In a new conversation, "Hello." gets the reply "1: Hello."; if the user then says
    "Again." in the same conversation, the reply is "2: Again.".

    One object may serve many conversations at once. So it keeps nothing between calls:
    whatever it knows, it reads from the request.
    """

    async def generate(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Return the reply to a request.

        The user's messages are the items of `request.turns` that are a `Message` of the
        role "user"; look at `turn.content` of each turn. A reply is a `ModelResponse`
        whose content is one `Message` of the role "assistant".

        Args:
            request: What is asked. It has at least one message of the user.
            emit: Call it with a `TextDelta` for each piece of the reply, in order. Put
                together, the pieces are the reply; one piece is enough.
        """
        raise NotImplementedError("EchoModel.generate is not written yet")
