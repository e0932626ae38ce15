"""Tool calls that a message asks for by name.

    delete_file path="my file.txt"          arguments as key=value
    use add a=1 b=2, then run clock         several calls; none needs an argument
    delete_file old.txt                     the one argument of a tool

A value is bare, in quotes, or a JSON array or object, and becomes what the tool's JSON
schema asks for. A tool that is only spoken of is not called.

This file knows nothing of models; `offline.py` uses it.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, cast

from minagent.errors import NotSerializableError
from minagent.events import ToolCall, freeze, load_json
from minagent.model import ToolSpec

_NOT_ASKED = re.compile(
    r"^\W*(?:what|which|why|how|when|where|who|does|did|is|was|should)\b"
    r"|\b(?:don't|do not|never|not) (?:\w+ ){0,3}$",
    re.IGNORECASE,
)
_ASKED = re.compile(r"\b(?:run|call|use)(?: the)?(?: tool)? $", re.IGNORECASE)
_KEY = re.compile(r"(?:[\s,(]|\b(?:with|and)\b)*([A-Za-z_]\w*)\s*=\s*")
_QUOTED = re.compile(r"[\s(]*(?:\"([^\"]*)\"|'([^']*)')")
_LAST_WORD = re.compile(r"\s+(?!(?:please|now|again)\b)(\S{1,200}?)[.!?]{0,3}\s*$")
_WORD = re.compile(r"[^\s,]+")
_JSON_TYPES: dict[type, set[str]] = {
    bool: {"boolean"},
    int: {"integer", "number"},
    float: {"number"},
    list: {"array"},
    dict: {"object"},
    type(None): {"null"},
}
_WORDS_OF_JSON = {"True": "true", "False": "false", "None": "null"}


def named_calls(
    message: str, tools: Sequence[ToolSpec], first: int
) -> Iterator[ToolCall]:
    """Yield the calls that a message asks for, in order.

    Args:
        message: What the user wrote.
        tools: The tools that there are.
        first: The number in the id of the first call.
    """
    specs = {spec.name: spec for spec in tools}
    names = "|".join(map(re.escape, sorted(specs, key=len, reverse=True)))
    name = re.compile(rf"(?<![\w./-])({names})(?![\w/-]|\.\w)`?")
    at = 0
    while specs and (found := name.search(message, at)):
        spec, at = specs[found[1]], found.end()
        before = message[max(0, found.start() - 100) : found.start()].rstrip("`")
        before = re.split(r"[.!?;]\s+|\n", before)[-1]
        if _NOT_ASKED.search(before):
            continue
        arguments, at = _named(spec, message, at)
        if not arguments:
            arguments, at = _alone(spec, message, at, before)
        if arguments is not None:
            call_id = f"call_{first}"
            yield ToolCall(name=spec.name, arguments=arguments, tool_call_id=call_id)
            first += 1


# Each of these returns the arguments that stand at a place, and where they end.
Found: TypeAlias = tuple[dict[str, Any] | None, int]


def _named(spec: ToolSpec, message: str, at: int) -> Found:
    arguments: dict[str, Any] = {}
    while key := _KEY.match(message, at):
        text, end = _value(message, key.end())
        if end == key.end():
            break
        arguments[key[1]] = _converted(text, spec, key[1])
        at = end
    return arguments, at


def _alone(spec: ToolSpec, message: str, at: int, before: str) -> Found:
    """Find one argument without a key, or none where the message asks for that."""
    required: Any = spec.parameters.get("required", ())
    names = list(required or _properties(spec))
    asked = _ASKED.search(before)
    if len(names) == 1:
        found = _QUOTED.match(message, at)
        if not found and (asked or before.strip().lower() in ("", "please")):
            found = _LAST_WORD.match(message, at)
        if found:
            text = next(each for each in found.groups() if each is not None)
            return {names[0]: _converted(text, spec, names[0])}, found.end()
    is_all = message.strip(" `.!") == spec.name
    return ({} if not required and (asked or is_all) else None), at


def _value(message: str, at: int) -> tuple[str, int]:
    """Return the text of the value at a place, and where it ends."""
    if quoted := _QUOTED.match(message, at):
        return quoted[1] if quoted[1] is not None else quoted[2], quoted.end()
    if message[at : at + 1] in ("[", "{"):
        with suppress(ValueError, RecursionError):
            _, end = json.JSONDecoder().raw_decode(message, at)
            return message[at:end], end
    word = _WORD.match(message, at)
    text = word[0] if word else ""
    # A full stop behind a word is the sentence's; `path=..` has none behind a word.
    return re.sub(r"(?<=\w)[.;:!?)]+$", "", text), at + len(text)


def _converted(text: str, spec: ToolSpec, name: str) -> Any:
    """Return a value as the tool's schema wants it: JSON if that fits, else text."""
    schema = _properties(spec).get(name, {})
    wanted = set(_types(schema, spec.parameters.get("$defs", {})))
    try:
        value = load_json(_WORDS_OF_JSON.get(text, text))
        fits = wanted & _JSON_TYPES.get(type(value), set())
        return freeze(value) if fits else text
    except (ValueError, NotSerializableError, RecursionError):
        return text


def _properties(spec: ToolSpec) -> Mapping[str, Any]:
    properties: Any = spec.parameters.get("properties", {})
    return cast(Mapping[str, Any], properties)


def _types(schema: Mapping[str, Any], definitions: Any) -> Iterator[str]:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield from _types(definitions.get(name, {}), definitions)
    kind = schema.get("type", [])
    yield from [kind] if isinstance(kind, str) else kind
    for each in [*schema.get("anyOf", []), *schema.get("oneOf", [])]:
        yield from _types(each, definitions)
