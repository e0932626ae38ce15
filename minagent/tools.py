"""Tools: functions that a model may call.

`@tool` makes a `Tool` of a function. The schema that the model reads comes from the
signature, the description from the docstring. Arguments are checked against the same
signature before the body is entered, as strict as JSON allows: what the log says a tool
was called with is what it was called with.

A parameter annotated `ExecutionContext` is not the model's: it is filled with the run.

This file knows nothing of approval but its options, and nothing of the loop.
"""

import asyncio
import contextvars
import inspect
import re
import string
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from threading import Thread
from typing import (
    Any,
    Generic,
    ParamSpec,
    TypeAlias,
    TypeVar,
    cast,
    get_type_hints,
    overload,
)

import pydantic
from pydantic import JsonValue, TypeAdapter
from pydantic_core import to_json

from minagent.context import ExecutionContext
from minagent.events import Media, ToolCall, ToolResult, dump_json, freeze, well_formed
from minagent.model import ToolSpec

P = ParamSpec("P")
R = TypeVar("R")

Gate: TypeAlias = bool | Callable[[Mapping[str, JsonValue]], bool]

_VALID_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Tool(Generic[P, R]):
    """A function that a model may call; you can still call it yourself.

    Attributes:
        function: The function.
        spec: What a model is told of it.
        requires_confirmation: Whether a person is asked before it runs; or a function
            that is given the arguments and tells.
        confirmation_message: The question, such as `"Delete {path}?"`, with the names
            of parameters in braces; None means a plain one.
        expires_in: How long the question stands; None means for ever.
        repeatable: Say yes only if running it twice does no harm: a call that a crash
            cut off is then carried out again.
        resumable: Say yes only if it keeps its own progress, in a session of its own: a
            call that was cut off, or paused, is then entered again with the same id.
    """

    function: Callable[P, R]
    spec: ToolSpec
    requires_confirmation: Gate
    confirmation_message: str | None
    expires_in: timedelta | None
    repeatable: bool
    resumable: bool
    _arguments: TypeAdapter[dict[str, Any]]
    _context_parameter: str | None

    @property
    def name(self) -> str:
        """The name that the model calls it by."""
        return self.spec.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    def checked(self, arguments: Mapping[str, JsonValue]) -> dict[str, Any]:
        """Return the arguments as the function takes them.

        Raises:
            ValueError: They do not fit; the message names each problem.
        """
        try:
            text = dump_json(freeze(arguments, "arguments"), "arguments")
            return self._arguments.validate_json(text, strict=True)
        except pydantic.ValidationError as error:
            found = error.errors(include_url=False, include_input=False)
            told = [f"{'.'.join(map(str, x['loc']))}: {x['msg']}" for x in found]
            raise ValueError("; ".join(told)) from None

    def question(self, arguments: Mapping[str, JsonValue]) -> str:
        """Return what a person is asked before it runs with these arguments."""
        if self.confirmation_message is None:
            shown = [f"{name}={dump_json(x, name)}" for name, x in arguments.items()]
            return f"Run {self.name}({', '.join(shown)})?"
        parameters = cast(dict[str, Any], self.spec.parameters["properties"])
        values = {name: each.get("default") for name, each in parameters.items()}
        try:
            return self.confirmation_message.format(**{**values, **arguments})
        except (TypeError, ValueError):  # such as {price:.2f} where the price is None
            return replace(self, confirmation_message=None).question(arguments)

    def is_gated(self, arguments: Mapping[str, JsonValue]) -> bool:
        """Whether a person is asked before it runs with these arguments."""
        gate = self.requires_confirmation
        return bool(gate(arguments) if callable(gate) else gate)

    async def invoke(self, arguments: dict[str, Any], context: ExecutionContext) -> Any:
        """Call the function and return what it returns.

        An ordinary function runs in a daemon thread of its own, so that it neither
        stops the event loop nor keeps the program from ending.

        Args:
            arguments: What `checked` returned.
            context: The run, for a parameter that asks for it.
        """
        if self._context_parameter is not None:
            arguments = {**arguments, self._context_parameter: context}
        function: Callable[..., Any] = self.function
        if inspect.iscoroutinefunction(function):
            return await function(**arguments)
        return await _in_thread(lambda: function(**arguments), self.name)


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    requires_confirmation: Gate = False,
    confirmation_message: str | None = None,
    expires_in: timedelta | None = None,
    repeatable: bool = False,
    resumable: bool = False,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    requires_confirmation: Gate = False,
    confirmation_message: str | None = None,
    expires_in: timedelta | None = None,
    repeatable: bool = False,
    resumable: bool = False,
) -> Any:
    """Make a tool of a function: `@tool`, or `@tool(...)` with options.

    Args:
        function: The function, sync or async. Each parameter has a type, and it has a
            docstring, which the model reads.
        name: What the model calls it; None means the function's name.
        requires_confirmation: Whether a person is asked before it runs; or a function
            that is given the arguments and tells. The options are those of `Tool`.
        confirmation_message: The question, such as `"Delete {path}?"`.
        expires_in: How long the question stands; None means for ever.
        repeatable: Say yes only if running it twice does no harm.
        resumable: Say yes only if it keeps its own progress.

    Raises:
        TypeError: A parameter has no type, or is one that no name can be given to.
        ValueError: The docstring is missing, the name is none that vendors take, the
            question has a placeholder that is no parameter, nobody could answer in
            time, or `repeatable` stands beside `requires_confirmation`.
    """

    def make(function: Callable[..., Any]) -> Tool[..., Any]:
        called, description = name or function.__name__, inspect.getdoc(function)
        if not description:
            raise ValueError(f"tool {called!r} has no docstring for the model to read")
        if not _VALID_NAME.fullmatch(called):
            raise ValueError(f"{called!r} is no name: 1 to 64 of a-z, A-Z, 0-9, _, -")
        if repeatable and requires_confirmation:
            raise ValueError(
                f"tool {called!r} cannot be repeatable and ask for confirmation: what "
                "a person approved once runs once"
            )
        if expires_in is not None and expires_in <= timedelta():
            raise ValueError(f"tool {called!r}: nobody can answer within {expires_in}")
        adapter, context_parameter = _arguments_of(function, called)
        schema = adapter.json_schema()
        _check_message(called, confirmation_message or "", schema)
        return Tool(
            function,
            ToolSpec(called, description, freeze(schema, "schema")),
            requires_confirmation,
            confirmation_message,
            expires_in,
            repeatable,
            resumable,
            adapter,
            context_parameter,
        )

    return make if function is None else make(function)


def as_result(call: ToolCall, value: Any) -> ToolResult:
    """Return what a tool returned as the result of its call.

    Args:
        call: The call.
        value: Text; None; a `ToolResult`; a pydantic model or whatever else has a JSON
            form; a `Media`, or a list or tuple of texts and `Media`.

    Raises:
        ValueError: It is none of these.
    """
    if isinstance(value, ToolResult):
        text = well_formed(value.content)
        call_id, name = call.tool_call_id, call.name
        return replace(value, tool_call_id=call_id, name=name, content=text)
    parts = value if isinstance(value, list | tuple) else [value]
    media = tuple(part for part in parts if isinstance(part, Media))
    if media:
        text = "\n".join(_text(part) for part in parts if not isinstance(part, Media))
    else:
        text = _text(value)
    return ToolResult(
        tool_call_id=call.tool_call_id,
        name=call.name,
        content=well_formed(text),
        media=media,
    )


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and any(isinstance(x, Media) for x in value.values()):
        raise ValueError("a Media in a dict; return it by itself, or in a list")
    return "" if value is None else to_json(well_formed(value)).decode()


def toolbox(tools: Sequence[Tool[..., Any]]) -> dict[str, Tool[..., Any]]:
    """Return the tools by name.

    Raises:
        TypeError: One of them is no `Tool`.
        ValueError: Two of them have one name.
    """
    if wrong := [each for each in tools if not isinstance(each, Tool)]:
        raise TypeError(f"{wrong[0]!r} is no tool; put @tool before the function")
    names = [each.name for each in tools]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"two tools have the name {twice[0]!r}")
    return dict(zip(names, tools, strict=True))


def _arguments_of(
    function: Callable[..., Any], called: str
) -> tuple[TypeAdapter[dict[str, Any]], str | None]:
    """Return the checker of a function's arguments, and its context parameter."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"tool {called!r}: {error}; is the type defined at the top of its module?"
        ) from error
    context_parameter, parameters = None, []
    for each in inspect.signature(function).parameters.values():
        if each.kind not in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY):
            raise TypeError(f"tool {called!r}: {each} cannot be passed by name")
        if each.name not in hints:
            raise TypeError(f"tool {called!r}: parameter {each.name!r} has no type")
        if hints[each.name] is ExecutionContext:
            context_parameter = each.name
        else:
            parameters.append(each.replace(kind=each.KEYWORD_ONLY))

    # pydantic checks calls of functions; this one has the tool's signature and hands
    # back what it was called with.
    def collect(**arguments: Any) -> dict[str, Any]:
        return arguments

    collect.__name__ = called
    collect.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    collect.__annotations__ = {each.name: hints[each.name] for each in parameters}
    try:
        adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(cast(Any, collect))
        adapter.json_schema()
    except pydantic.PydanticUserError as error:
        raise TypeError(f"tool {called!r}: {error.message}") from error
    return adapter, context_parameter


def _check_message(name: str, message: str, schema: Mapping[str, Any]) -> None:
    try:
        parts = [part[1:] for part in string.Formatter().parse(message)]
    except ValueError as error:
        raise ValueError(f"tool {name!r}: confirmation_message: {error}") from None
    for place, spec, conversion in parts:
        odd = "{" in (spec or "") or conversion not in (None, "a", "r", "s")
        if place is not None and (odd or place not in schema.get("properties", {})):
            raise ValueError(
                f"tool {name!r}: confirmation_message has {{{place}}}, and that is no "
                "parameter of the tool, or its format is none"
            )


async def _in_thread(work: Callable[[], Any], name: str) -> Any:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def run() -> None:
        outcome: tuple[Any, BaseException | None]
        try:
            outcome = variables.run(work), None
        except BaseException as error:
            outcome = None, error
        with suppress(RuntimeError):  # the loop may be closed; nobody waits any more
            loop.call_soon_threadsafe(
                lambda: future.done() or future.set_result(outcome)  # type: ignore[func-returns-value]
            )

    variables = contextvars.copy_context()
    Thread(target=run, name=f"tool {name}", daemon=True).start()
    value, error = await future
    if error is not None:
        raise error
    return value
