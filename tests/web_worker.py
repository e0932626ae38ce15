"""A server in a process of its own: `python web_worker.py DATABASE`; it says where."""

import asyncio
import sys

from serving import served

from minagent import Agent, Message, ModelRequest, ModelResponse, TextDelta
from minagent.model import Emit
from minagent.stores import SQLiteSessionManager
from minagent.web import create_app

PIECES = 5


class Echo:
    """A model that repeats what was said last, piece by piece."""

    async def generate(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        said = request.events[-1].content[-1]
        assert isinstance(said, Message)
        for number in range(PIECES):
            emit(TextDelta(f"{said.content} {number}. "))
            await asyncio.sleep(0.001)
        text = "".join(f"{said.content} {number}. " for number in range(PIECES))
        return ModelResponse((Message(role="assistant", content=text),))


async def main(path: str) -> None:
    store = SQLiteSessionManager(path, durability="normal")
    async with store, served(create_app(Agent(Echo(), session_manager=store))) as url:
        print(url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
