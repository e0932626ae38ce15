"""The agent that a command runs: `--model` and `--tools`, by their names.

    offline         rules, no key; it calls a tool that a message names
    claude-…        a model at the Anthropic API; the key is in ANTHROPIC_API_KEY
    local           a small model on this machine; it cannot call tools

A tool is named by its module and its name there: `--tools shop:refund`, or a list of
tools, `--tools shop:tools`. Modules in the current folder are found behind those that
are installed.

This file knows nothing of stores, and of the screen.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any, TypeAlias, cast

import typer

from minagent import Model, Session, Tool, models
from minagent.cli.outcome import UsageError, whole_story
from minagent.errors import MinagentError
from minagent.models import OfflineModel
from minagent.tools import toolbox
from minagent.windows import keep_tokens

OFFLINE, LOCAL = "offline", "local"
LOCAL_NAME = "SmolLM2-135M-Instruct"
"""How the local model signs what it writes."""

MAX_TOKENS = 8192
LOCAL_TOKENS = 1_500
"""How much of a conversation the local model is shown; it takes about 2,000."""

SECONDS_A_WORD = 0.02
"""How fast the offline model speaks to a person: so that one sees it stream."""

ModelName: TypeAlias = Annotated[
    str, typer.Option("--model", metavar="NAME", help="offline, local, or claude-…")
]
ToolNames: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--tools",
        metavar="MODULE:NAME",
        help="A tool, or a list of tools, in a module; may be given several times.",
    ),
]


def made_model(name: str, *, is_watched: bool = False) -> Model:
    """Return the model of a name.

    Args:
        name: `offline`, `local` or `claude-…`.
        is_watched: Whether a person sees it stream.

    Raises:
        UsageError: There is no such model.
        MinagentError: It is not to be had here; the message says how to get it.
    """
    try:
        if name == OFFLINE:
            return OfflineModel(delay_seconds=SECONDS_A_WORD if is_watched else 0)
        if name == LOCAL:
            return models.LocalModel()
    except ModuleNotFoundError as error:
        raise MinagentError(problem=str(error)) from error
    # Where another server speaks the API, its models have names of their own.
    if not name.startswith("claude-") and not os.environ.get("ANTHROPIC_BASE_URL"):
        raise UsageError(f"--model: {name!r} is none of offline, local and claude-…")
    return models.AnthropicModel(name, max_tokens=MAX_TOKENS)


def windows(name: str) -> list[Any]:
    """Return what keeps a conversation as short as a model can take it."""
    return [keep_tokens(LOCAL_TOKENS)] if name == LOCAL else []


def model_of(session: Session) -> str | None:
    """Return the name of the model that wrote the newest reply, or None."""
    written = [event.model for event in session.events if event.model]
    if not written:
        return None
    return LOCAL if written[-1] == LOCAL_NAME else written[-1]


@contextmanager
def asking(name: str) -> Iterator[None]:
    """Give what the client of a model raises a name of ours.

    Raises:
        MinagentError: The model could not be asked.
    """
    vendors = () if name == OFFLINE else (import_module("anthropic").AnthropicError,)
    try:
        yield
    except vendors as error:
        story = " ".join(whole_story(error))
        raise MinagentError(problem=f"{name} could not be asked: {story}") from error


def named_tools(names: Sequence[str]) -> tuple[Tool[..., Any], ...]:
    """Return the tools of some names, `module:name` each.

    Raises:
        UsageError: A name leads to no tool, or two tools have one name.
    """
    found = tuple(each for name in names for each in _tools_at(name))
    try:
        toolbox(found)
    except (TypeError, ValueError) as error:
        raise UsageError(f"--tools: {error}") from error
    return found


def _tools_at(place: str) -> Sequence[Tool[..., Any]]:
    try:
        found: Any = imported(place, "module:name, such as shop:refund")
    except UsageError as error:
        raise UsageError(f"--tools: {error}") from None
    return found if isinstance(found, list | tuple) else [found]


def imported(place: str, form: str) -> object:
    """Return what a name leads to; modules are looked for in the current folder, too.

    Args:
        place: `module:name`.
        form: What such a name looks like, for the error.

    Raises:
        UsageError: It leads to nothing, or the module cannot be imported.
    """
    module, _, name = place.partition(":")
    if not (module and name) or module.startswith("."):
        raise UsageError(f"{place!r} is no {form}")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        found = import_module(module)
        is_there = hasattr(found, name)
    except (Exception, SystemExit) as error:
        # The module is the user's, so it may raise whatever it likes, or end Python: a
        # script does so that does not look whether it is only imported.
        problem = f"{type(error).__name__}: {error}"
        raise UsageError(f"{place}: {problem}") from error
    if not is_there:
        raise UsageError(f"{place}: {module} has no {name!r}")
    return cast(object, getattr(found, name))
