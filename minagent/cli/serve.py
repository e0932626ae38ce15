"""`minagent serve`: a page in the browser to talk to an agent, on this machine.

The agent is one of yours, `module:agent`, found as tools are (`agents.py`), or one to
look around with: the offline model, a tool that just runs, one that asks first, and
memories. Sessions are where `minagent chat` has them, so both show the same.

The socket is opened before the address is printed, and the stores are closed after the
server has ended, however it was told to.

This file knows nothing of the page and its API. What it runs needs the extra `web`.
"""

import asyncio
import os
import random
import socket
import webbrowser
from contextlib import AsyncExitStack, suppress
from typing import Annotated

import typer

from minagent import Agent, ExecutionContext, InMemorySessionManager, SessionStore, tool
from minagent.cli.agents import OFFLINE, imported, made_model
from minagent.cli.outcome import UsageError, told
from minagent.cli.places import MEMORIES, MEMORY_VARIABLE, Store, memory_at, store_at
from minagent.errors import MinagentError
from minagent.memory import MemoryManager, recall

_HINT = """\
Say: My kayak is red. And in another conversation: What is my kayak?
Or:  roll_dice times=3
Or:  send_letter to=Ada text="All is well."
"""


def serve(
    agent: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE:AGENT", help="The agent; without it, one to look around."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port; 0 takes one that is free.")
    ] = 8000,
    store: Store = None,
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory",
            metavar="URL",
            help="Recall from here what was said in other conversations, and keep what "
            f"is said: sqlite:///memory.db. Without it: what {MEMORY_VARIABLE} says; "
            "without both, an agent of yours recalls what it likes, and the one to "
            f"look around has {MEMORIES} in minagent's folder.",
        ),
    ] = None,
    opens: Annotated[
        bool, typer.Option("--open/--no-open", help="Show it in the browser.")
    ] = False,
) -> None:
    """Talk to an agent in the browser.

    Only this machine is answered, since there is no login. Ctrl-C ends the server; what
    was said is kept, and a run that it cuts off can be gone on with.

    Example: minagent serve shop:clerk --store sqlite:///shop.db --open
    """
    with told():
        _check_host(host)
        served = _named(agent) if agent else _example()
        recalls = agent is None or memory or os.environ.get(MEMORY_VARIABLE)
        memories = memory_at(memory) if recalls else None
        _serve(
            served, store, memories, host, port, opens=opens, is_example=agent is None
        )


def _serve(
    agent: Agent,
    store: str | None,
    memories: MemoryManager | None,
    host: str,
    port: int,
    *,
    opens: bool,
    is_example: bool,
) -> None:
    try:
        from minagent.web import LOOPBACK, Server, create_app
    except ModuleNotFoundError as error:
        raise MinagentError(problem=str(error)) from error
    sessions = agent.session_manager
    # An agent that says nothing of where sessions are kept has a store that forgets.
    if store or isinstance(sessions, InMemorySessionManager):
        sessions = agent.session_manager = store_at(store)
    if not isinstance(sessions, SessionStore):
        raise UsageError(f"{sessions!r} is no SessionStore: give one with --store")
    if memories is not None:
        agent.before_llm_callbacks = [recall(memories), *agent.before_llm_callbacks]
    name = f"[{host}]" if ":" in host else host
    app = create_app(agent, memory=memories, hosts=(*LOOPBACK, name))
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with (
        socket.create_server((host, port), family=family) as listening,
        asyncio.Runner() as runner,
    ):
        opened = AsyncExitStack()
        try:
            runner.run(opened.enter_async_context(sessions))
            if memories is not None:
                runner.run(opened.enter_async_context(memories))
            address = f"http://{name}:{listening.getsockname()[1]}/"
            # The server has ended in good order when it hands Ctrl-C on.
            with suppress(KeyboardInterrupt):
                typer.echo(f"{agent.name} is at {address} (Ctrl-C ends it.)")
                if is_example:
                    typer.echo(_HINT, nl=False)
                if opens:
                    webbrowser.open(address)
                runner.run(Server(app).serve([listening]))
        finally:
            runner.run(opened.aclose())


def _check_host(host: str) -> None:
    """Check an address to listen on, as far as that goes without asking for it.

    Raises:
        UsageError: It is blank, which would be every address of the machine; or no
            name can be such.
    """
    try:
        is_name = bool(host.strip() and host.encode("idna"))
    except UnicodeError:
        is_name = False
    if not is_name:
        raise UsageError(f"--host: {host!r} is no address, such as 127.0.0.1")


def _named(place: str) -> Agent:
    """Return the agent of a name.

    Raises:
        UsageError: The name leads to no agent.
    """
    found = imported(place, "module:agent, such as shop:clerk")
    if not isinstance(found, Agent):
        raise UsageError(f"{place}: {type(found).__name__} is no Agent")
    return found


@tool
async def roll_dice(context: ExecutionContext, times: int = 1, sides: int = 6) -> str:
    """Roll dice."""
    rolled: list[str] = []
    for count in range(1, min(times, 10) + 1):
        context.progress(f"{count} of {times} …")
        await asyncio.sleep(0.5)
        rolled.append(str(random.randint(1, max(1, sides))))
    return ", ".join(rolled)


@tool(requires_confirmation=True, confirmation_message="Send a letter to {to}?")
def send_letter(to: str, text: str) -> str:
    """Send a letter; here it only says so."""
    return f"A letter to {to} is on its way: {len(text.split())} words."


def _example() -> Agent:
    model = made_model(OFFLINE, is_watched=True)
    return Agent(model, tools=[roll_dice, send_letter])
