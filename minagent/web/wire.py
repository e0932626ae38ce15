"""The words of the wire: JSON, and what a client is told of an error.

A card, a question or the end of a run is a dataclass, and `as_json` gives it with all
its fields, so that the keys are always there. An event is what `Event.to_json` says:
a client reads what a store keeps.

`told` is the one place where an error becomes words for a client. What is not named
here may speak of a path or a key, so the client hears no more than that it happened;
the server's log has the rest.

This file knows nothing of sessions and runs.
"""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import TypeAlias

from pydantic import JsonValue
from starlette.exceptions import HTTPException
from starlette.responses import Response

from minagent import errors

Told: TypeAlias = dict[str, JsonValue]

# Of these, the name and the message are for the client. The first that fits counts.
_STATUS: Mapping[type[Exception], int] = {
    errors.SessionNotFoundError: 404,
    errors.UnknownEventError: 404,
    errors.SessionBusyError: 409,
    errors.SessionConflictError: 409,
    errors.NothingToContinueError: 409,
    errors.MaxStepsExceededError: 409,
    errors.NodeFailedError: 409,
    errors.ApprovalError: 409,
    errors.InvalidSessionIdError: 422,
    errors.NotSerializableError: 422,
}
_NAMES: Mapping[int, str] = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    413: "TooLarge",
    415: "UnsupportedMediaType",
    421: "MisdirectedRequest",
    422: "Invalid",
    503: "Unavailable",
}


def as_json(value: object) -> JsonValue:
    """Return a dataclass, or what is in one, as JSON data with all its fields."""
    if is_dataclass(value):
        return {each.name: as_json(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    assert value is None or isinstance(value, str | int | float)
    return value


def dumped(data: JsonValue) -> bytes:
    """Return JSON data as text in UTF-8, on one line.

    Half an emoji, as the end of a delta may be, is written as JSON's escape for it.
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


def response(data: JsonValue, status: int = 200) -> Response:
    """Return a response that holds JSON data."""
    return Response(dumped(data), status, media_type="application/json")


def told(error: BaseException) -> tuple[int, Told]:
    """Return the status of an error, and the words for a client.

    Args:
        error: Any error; one without words for clients is an `InternalError`.
    """
    if isinstance(error, HTTPException):
        name = _NAMES.get(error.status_code, "Refused")
        return error.status_code, {"type": name, "message": error.detail}
    for kind, status in _STATUS.items():
        if isinstance(error, kind):
            return status, {"type": type(error).__name__, "message": str(error)}
    if isinstance(error, errors.StoreUnavailableError):
        message = "the store could not be used; try again"
        return 503, {"type": type(error).__name__, "message": message}
    message = "something went wrong; the server's log says what"
    return 500, {"type": "InternalError", "message": message}


def refusal(error: BaseException) -> Response:
    """Return the response that tells a client of an error."""
    status, words = told(error)
    refused = response({"error": words}, status)
    if isinstance(error, HTTPException):
        refused.headers.update(error.headers or {})
    return refused
