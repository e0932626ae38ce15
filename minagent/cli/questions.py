"""A question to the person at the terminal, and what the person decides.

`confirm` asks before something is gone for good. `decision_on` asks about a call that
waits: the question itself stands on the card of the call, with all of its arguments.
Here the person says `approve`, `edit` (other arguments, as JSON) or `deny` (and why).
An empty line, Ctrl-C and the end of input decide nothing: the question goes on waiting.

This file knows nothing of runs.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from minagent import MinagentError, PendingToolCall, Tool, ToolConfirmation
from minagent.cli.outcome import UsageError
from minagent.cli.screen import Screen
from minagent.events import load_json, thaw

try:
    import readline
except ModuleNotFoundError:  # as on Windows
    readline = None  # type: ignore[assignment]

_WORDS = {"approve": "approve", "a": "approve", "yes": "approve", "y": "approve"}
_WORDS |= {"edit": "edit", "e": "edit"}
_WORDS |= {"deny": "deny", "d": "deny", "no": "deny", "n": "deny"}


def confirm(question: str, yes: bool) -> None:
    """Ask before something is gone for good.

    Args:
        question: What is to be done.
        yes: Whether the person has said yes already.

    Raises:
        UsageError: There is nobody to ask.
        MinagentError: The answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Say --yes, since there is nobody to ask.")
    try:
        typed = Screen().ask(f"{question} [y/N] ")
    except EOFError:
        typed = ""
    if typed.lower() not in ("y", "yes"):
        raise MinagentError(problem="nothing was deleted")


def decision_on(
    pending: PendingToolCall,
    screen: Screen,
    tools: Mapping[str, Tool[..., Any]],
    by: str | None,
) -> ToolConfirmation:
    """Ask the person at the terminal, and return the decision.

    Args:
        pending: The question; its card is on the screen.
        screen: Where to ask.
        tools: The agent's tools, to check edited arguments.
        by: Who decides.

    Raises:
        EOFError: There is no answer.
        KeyboardInterrupt: The person does not want to decide now.
    """
    while True:
        screen.write("\n")
        typed = screen.ask(f"{pending.confirmation_message} approve, edit or deny? ")
        match _WORDS.get(typed.lower()):
            case "approve":
                return pending.approve(by=by)
            case "deny":
                return pending.deny(screen.ask("Why not? ") or None, by=by)
            case "edit":
                known = None if pending.path else tools.get(pending.name)
                arguments = _edited(pending, screen, known)
                if arguments is not None:  # none at all are arguments, too
                    return pending.approve(by=by, arguments=arguments)
            case _:
                screen.line('Please type "approve", "edit" or "deny".')


def arguments_of(text: str) -> dict[str, JsonValue]:
    """Return the arguments that a person typed.

    Raises:
        ValueError: The text is no JSON object.
    """
    arguments = load_json(text)
    if not isinstance(arguments, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 - of what was typed
    return arguments


def _edited(
    pending: PendingToolCall, screen: Screen, tool: Tool[..., Any] | None
) -> dict[str, JsonValue] | None:
    """Return other arguments, or None if they would not do."""
    before = json.dumps(thaw(pending.arguments), ensure_ascii=False)
    try:
        arguments = arguments_of(_typed_over(screen, before))
        if tool is not None:
            tool.checked(arguments)
    except (ValueError, MinagentError) as error:
        screen.line(f"These do not fit: {error}")
        return None
    return arguments


def _typed_over(screen: Screen, before: str) -> str:
    """Ask for a line that begins as a text, where the terminal can do that."""
    if readline is None:
        return screen.ask("Arguments, as JSON: ")
    readline.set_startup_hook(lambda: readline.insert_text(before))
    try:
        return screen.ask("Arguments, as JSON: ")
    finally:
        readline.set_startup_hook()
