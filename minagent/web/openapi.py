"""What may be sent to the API, and the document that describes it.

The models are what the routes check a body against, and the document's schemas are made
of them, so the two cannot differ.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field, JsonValue

from minagent.events import ToolConfirmation
from minagent.web.follow import NAMES


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("is blank; leave it out to go on without input")
    return text


class Sent(BaseModel, extra="forbid", strict=True):
    """What a client may send: these keys, of these types, and no others."""


class NewMessage(Sent):
    """What the user says.

    Attributes:
        text: The words. Without them the run goes on from where the log ends.
    """

    text: (
        Annotated[str, Field(min_length=1, pattern=r"\S"), AfterValidator(_not_blank)]
        | None
    ) = None


class DecisionBody(Sent):
    """What the user decides about one call that waits.

    Attributes:
        tool_call_id: The call.
        verdict: Run it, do not, or take `answer` as its result.
        arguments: For `approve`: what to run it with instead of what was asked.
        reason: For `deny`: why, in words for the model.
        answer: For `answer`: the result.
        fingerprint: Of the question; if it is given, it must be of this one.
        path: For a question inside a call: that of the question.
    """

    tool_call_id: str
    verdict: Literal["approve", "deny", "answer"]
    arguments: dict[str, JsonValue] | None = None
    reason: str | None = None
    answer: str | None = None
    fingerprint: str | None = None
    path: list[str] = []

    def confirmation(self, *, by: str) -> ToolConfirmation:
        """Return the decision.

        Args:
            by: Who decides.
        """
        approved = self.verdict == "approve"
        return ToolConfirmation(
            tool_call_id=self.tool_call_id,
            approved=approved,
            modified_arguments=self.arguments if approved else None,
            reason=self.reason if self.verdict == "deny" else None,
            answer=(self.answer or "") if self.verdict == "answer" else None,
            by=by,
            fingerprint=self.fingerprint,
            path=tuple(self.path),
        )


class Decisions(Sent):
    """What the user decides; all of it is taken, or nothing.

    Attributes:
        decisions: One for each call.
    """

    decisions: Annotated[list[DecisionBody], Field(min_length=1, max_length=100)]


class Branch(Sent):
    """Where a copy begins.

    Attributes:
        at: The last event of the copy; without it, the copy is as the session is now.
    """

    at: str | None = None


@cache
def document() -> dict[str, JsonValue]:
    """Return the API's description, as OpenAPI 3.1."""
    one, schemas = "/api/sessions/{session_id}", dict(_SCHEMAS)
    for kind in (NewMessage, Decisions, Branch):
        schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= {**schema.pop("$defs", {}), kind.__name__: schema}
    paths: dict[str, JsonValue] = {
        "/api/me": {"get": _operation("Who asks, and who answers", {200: "Me"})},
        "/api/sessions": {
            "get": _operation(
                "List the user's sessions, in the order in which they were made",
                {200: "Sessions"},
                _parameter("limit", {"type": "integer", "minimum": 1, "maximum": 100}),
                _parameter("after", _TEXT | {"pattern": r"^[^\x00-\x1f\x7f-\x9f]*$"}),
            ),
            "post": _operation("Make a session", {201: "Session"}),
        },
        one: {
            "get": _operation("All of a session", {200: "WholeSession"}, _ID),
            "delete": _operation("Delete a session, and its run", {204: ""}, _ID),
        },
        f"{one}/messages": {"post": _run("Say something, or go on", "NewMessage")},
        f"{one}/decisions": {"post": _run("Decide about calls", "Decisions")},
        f"{one}/follow": {
            "get": _operation(
                "Follow a session",
                {200: "Frame"},
                _ID,
                _parameter("after", _TEXT),
                _parameter("cards", _YES_NO),
                _parameter("Last-Event-ID", _TEXT, "header"),
            )
        },
        f"{one}/cancel": {
            "post": _operation("Cancel the run in progress", {200: "Cancelled"}, _ID)
        },
        f"{one}/fork": {
            "post": _operation(
                "Make a session that begins as this one stood",
                {201: "Session"},
                _ID,
                body="Branch",
            )
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "minagent", "version": "1"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _operation(
    summary: str,
    answers: Mapping[int, str],
    *parameters: JsonValue,
    body: str | None = None,
) -> JsonValue:
    named = {str(status): name for status, name in answers.items()}
    operation: dict[str, JsonValue] = {
        "summary": summary,
        "parameters": [*parameters],
        "responses": {k: _answer(x) for k, x in (named | {"default": "Error"}).items()},
    }
    if body:
        content: JsonValue = {"application/json": {"schema": _ref(body)}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _run(summary: str, body: str) -> JsonValue:
    return _operation(summary, {200: "Frame", 202: "Opened"}, _ID, body=body)


def _answer(name: str) -> JsonValue:
    kind = "text/event-stream" if name == "Frame" else "application/json"
    content: JsonValue = {kind: {"schema": _ref(name)}} if name else {}
    return {"description": name or "Done", "content": content}


def _ref(name: str) -> JsonValue:
    return {"$ref": f"#/components/schemas/{name}"}


def _parameter(name: str, schema: JsonValue, place: str = "query") -> JsonValue:
    needed = place == "path"
    return {"in": place, "name": name, "required": needed, "schema": schema}


def _object(**properties: JsonValue) -> JsonValue:
    required: JsonValue = [*properties]
    return {"type": "object", "properties": properties, "required": required}


_TEXT: dict[str, JsonValue] = {"type": "string"}
_COUNT: JsonValue = {"type": "integer", "minimum": 0}
_YES_NO: JsonValue = {"type": "boolean"}
_LIST: JsonValue = {"type": "array", "items": {"type": "object"}}
_ID = _parameter("session_id", _TEXT | {"minLength": 1}, "path")
_SESSION: dict[str, JsonValue] = {
    **dict.fromkeys(("session_id", "user_id", "created_at", "updated_at"), _TEXT),
    **{"title": _TEXT, "version": _COUNT, "event_count": _COUNT},
    **{"waiting": _COUNT, "running": _YES_NO},
}
_SCHEMAS: dict[str, JsonValue] = {
    "Me": _object(user_id=_TEXT, agent=_TEXT),
    "Session": _object(**_SESSION),
    "Sessions": _object(
        sessions={"type": "array", "items": _ref("Session")},
        next={"type": ["string", "null"]},
    ),
    "WholeSession": _object(**_SESSION, pending=_LIST, events=_LIST, cards=_LIST),
    "Opened": _object(session_id=_TEXT, execution_id=_TEXT),
    "Cancelled": _object(cancelled=_YES_NO),
    "Frame": {"type": "object", "properties": {"event": {"enum": [*NAMES]}}},
    "Error": _object(error=_object(type=_TEXT, message=_TEXT)),
}
