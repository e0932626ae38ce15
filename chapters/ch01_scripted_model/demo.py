"""Two questions without history, and the same two with it; each request is shown."""

import asyncio

from minagent import Agent, Message, ModelRequest, ModelResponse
from minagent.model import Emit
from minagent.models import OfflineModel

QUESTIONS = ["Hello, my name is Ada.", "What is my name?"]


class ShownModel:
    """Shows each request, and lets another model answer it."""

    async def generate(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Reply as `OfflineModel` does."""
        said = [
            f"{item.role}: {item.content}"
            for turn in request.turns
            for item in turn.content
            if isinstance(item, Message)
        ]
        print("  sent:", " | ".join(said))
        return await OfflineModel().generate(request, emit)


async def main() -> None:
    """Hold both conversations."""
    agent = Agent(ShownModel())

    print("without history")
    for question in QUESTIONS:
        result = await agent.run(question)
        print("  got: ", result.output)

    print("with history")
    context = None
    for question in QUESTIONS:
        result = await agent.run(question, context=context)
        context = result.context
        print("  got: ", result.output)


if __name__ == "__main__":
    asyncio.run(main())
