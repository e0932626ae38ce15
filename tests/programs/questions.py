"""A program that asks questions in a session that others use at the same time.

    python questions.py STORE NAME COUNT

It waits for a line of input, so that several begin together, and ends with a count of
what happened. A conflict tells that a question is stored: somebody else saved in
between, and whoever runs next answers.
"""

import asyncio
import itertools
import json
import sys
from collections import Counter

from turns import opened

from minagent import Agent, ModelRequest, NothingToContinueError, SessionConflictError
from minagent.models import ScriptedModel

SESSION = "room"


def reply(request: ModelRequest) -> str:
    return f"Answer behind {len(request.events)} events."


async def ask(agent: Agent, question: str, count: Counter[str]) -> None:
    """Ask until nothing is left to answer."""
    words: str | None = question
    while True:
        try:
            await agent.run(words, session_id=SESSION)
            count["answers"] += 1
            if words is not None:
                return
        except SessionConflictError:
            count["conflicts"] += 1
        except NothingToContinueError:
            return
        words = None  # it is stored


async def main(path: str, name: str, questions: int) -> Counter[str]:
    count: Counter[str] = Counter()
    async with opened(path) as sessions:
        await sessions.get(SESSION)  # to be connected by the time that all begin
        print("ready", flush=True)
        sys.stdin.readline()
        model = ScriptedModel(itertools.repeat(reply))  # refuses an invalid request
        agent = Agent(model, session_manager=sessions)
        for number in range(questions):
            await ask(agent, f"{name}: question {number}", count)
    count["requests"] = len(model.requests)
    return count


if __name__ == "__main__":
    _, path, name, questions = sys.argv
    print(json.dumps(asyncio.run(main(path, name, int(questions)))))
