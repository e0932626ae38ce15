"""Sessions of Strands Agents: snapshots, and the message files before them.

    session/<session>/scopes/agent/<agent>/snapshots/snapshot_latest.json
    session_<session>/agents/agent_<agent>/agent.json
    session_<session>/agents/agent_<agent>/messages/message_<n>.json

A session of theirs is a name for several agents, each with messages and a state of its
own; so each agent becomes a session here: `<session>` if it is alone, otherwise
`<session>:<agent>`. The run of a graph or swarm goes into the state of a session
`<session>:<name>` without a log, since nothing here can go on with it.

A snapshot has the messages that were left when it was taken. Message files have all,
also those that a conversation manager left out of what the model saw: here they are in
the log again, and `minagent.windows` is for what a model is to see. Of a message that
was redacted, only what stands in its place is read.

What a message says becomes items in `strands_blocks.py`.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

from minagent.errors import MinagentError
from minagent.events import Usage
from minagent.foreign.intake import Foreign, Intake, read_json, taking, time_of
from minagent.foreign.strands_blocks import items_of

Data: TypeAlias = dict[str, Any]

LATEST = "snapshot_latest.json"
SCHEMA_VERSIONS = ("1.0",)
"""The versions of snapshots that were written so far."""

_MESSAGE_FILE = re.compile(r"message_(\d+)\.json")


def is_json(path: Path) -> bool:
    """Whether a file holds JSON that looks like a snapshot, or a list of messages."""
    try:
        return bool(_snapshot(read_json(path.read_text("utf-8"), path.name)))
    except (MinagentError, UnicodeDecodeError):
        return False


def sessions_of(path: Path) -> list[Foreign]:
    """Return the session of a JSON file, or none if it is none.

    Raises:
        MinagentError: It is no JSON, or a snapshot of a later version.
    """
    if (snapshot := _snapshot(_read(path))) is None:
        return []
    session_id, agent_id = _names(path) if path.name == LATEST else (path.stem, None)
    return [_of_snapshot(snapshot, session_id, agent_id, path)]


def sessions_in(folder: Path) -> list[Foreign]:
    """Return the sessions of a folder, or none.

    Raises:
        MinagentError: One is no JSON, or of a later version, or is a link: it could
            bring other files of this machine into a log.
    """
    found = [*_found_in(folder)]
    agents = Counter(session_id for session_id, _, _ in found)
    return [
        replace(made, session_id=f"{session_id}:{agent_id}")
        if agents[session_id] > 1
        else made
        for session_id, agent_id, made in sorted(found, key=lambda each: each[:2])
    ]


def _found_in(folder: Path) -> Iterator[tuple[str, str, Foreign]]:
    """Yield the name of each session and agent, and what was read of it."""
    for path in folder.rglob(LATEST):
        if (snapshot := _snapshot(_read(path))) is None:
            raise MinagentError(problem=f"{path.name} is no snapshot of Strands")
        session_id, agent_id = _names(path)
        made = _of_snapshot(snapshot, session_id, agent_id, path)
        yield session_id, agent_id, made
    for path in [folder, *folder.rglob("messages")]:
        if path.name == "messages" and path.is_dir() and _is_of_agent(path):
            _refuse_link(path)
            agent = path.parent
            agent_id = agent.name.removeprefix("agent_")
            session_id = agent.parent.parent.name.removeprefix("session_")
            yield session_id, agent_id, _of_messages(path, session_id, agent_id)
    for path in folder.rglob("multi_agent.json"):
        name = path.parent.name.removeprefix("multi_agent_")
        session_id = path.parent.parent.parent.name.removeprefix("session_")
        yield session_id, name, _of_multi_agent(_object(path), session_id, name)


def _names(path: Path) -> tuple[str, str]:
    """Return the names of session and agent that the folders of a snapshot have."""
    names = [each.name for each in path.parents]
    if len(names) > 4 and names[0] == "snapshots" and names[3] == "scopes":
        return names[4], names[1]
    return path.parent.name, "agent"


# --- Snapshots ----------------------------------------------------------------


def _snapshot(data: object) -> Data | None:
    if isinstance(data, list) and data and all(map(_is_message, data)):
        return {"data": {"messages": data}}  # what programs keep of `agent.messages`
    if isinstance(data, dict) and {"scope", "data"} <= data.keys():
        return data if isinstance(data["data"], dict) else None
    return None


def _is_message(data: object) -> bool:
    return isinstance(data, dict) and {"role", "content"} <= data.keys()


def _of_snapshot(
    snapshot: Data, session_id: str, agent_id: str | None, path: Path
) -> Foreign:
    version = snapshot.get("schema_version", snapshot.get("schemaVersion"))
    if version not in (None, *SCHEMA_VERSIONS):
        known = f"{', '.join(SCHEMA_VERSIONS)} can be read"
        problem = f"{path.name} is a snapshot of version {version!r}; {known}"
        raise MinagentError(problem=problem)
    data = dict(snapshot["data"])
    if snapshot.get("scope") == "multiAgent":
        return _of_multi_agent(data, session_id, agent_id or "")
    intake = Intake(agent_id or "assistant")
    with taking(path.name):
        taken = time_of(snapshot.get("created_at", snapshot.get("createdAt")))
        for number, message in enumerate(data.pop("messages", [])):
            _take(intake, message, f"message {number}", taken)
        managed = _camel(data, "conversation_manager_state")
        if removed := managed.pop("removed_message_count", 0):
            intake.leave(f"{removed} messages that were removed before the snapshot")
        earlier = len([*path.parent.glob("immutable_history/*.json")])
        if earlier and path.name == LATEST:
            intake.leave(f"earlier snapshots: {earlier}")
        intake.leave_rest("snapshot", {"app_data": snapshot.get("app_data")})
        _leave_inner(intake, managed, _camel(data, "interrupt_state"))
        state = data.pop("state", {})
        intake.leave_rest("snapshot", data)
        return intake.foreign(session_id, state)


def _camel(data: Data, key: str) -> Data:
    """Take out a field that has the TypeScript spelling where TypeScript wrote it."""
    head, *rest = key.split("_")
    other = head + "".join(map(str.title, rest))
    return dict(data.pop(key, None) or data.pop(other, None) or {})


def _of_multi_agent(data: Data, session_id: str, name: str) -> Foreign:
    intake = Intake(name)
    intake.leave(f"the run of {name!r}, a graph or swarm: it is in the state, whole")
    return intake.foreign(session_id, {"strands": data})


# --- Message files ------------------------------------------------------------


def _is_of_agent(folder: Path) -> bool:
    numbered = (_MESSAGE_FILE.fullmatch(path.name) for path in folder.iterdir())
    return (folder.parent / "agent.json").exists() or any(numbered)


def _of_messages(folder: Path, session_id: str, agent_id: str) -> Foreign:
    intake = Intake(agent_id)
    about = folder.parent / "agent.json"
    agent = _object(about) if about.exists() else {}
    numbered = {}
    for path in folder.iterdir():
        if found := _MESSAGE_FILE.fullmatch(path.name):
            numbered[int(found[1])] = path
        else:
            intake.leave(f"the file {path.name}")
    with taking(folder.parent.name):
        for number, path in sorted(numbered.items()):
            entry = _object(path)
            message = entry.get("redact_message")
            if message is not None:
                intake.leave(f"message {number}: what it said before it was redacted")
            at = time_of(entry.get("created_at"))
            _take(intake, message or entry.get("message"), f"message {number}", at)
        managed = _camel(agent, "conversation_manager_state")
        if removed := managed.pop("removed_message_count", 0):
            intake.leave(
                f"that the model did not see the first {removed} messages any more"
            )
        inner = _camel(agent, "_internal_state")
        _leave_inner(intake, managed, inner.pop("interrupt_state", None) or {})
        intake.leave_rest("agent", inner)
        return intake.foreign(session_id, agent.get("state", {}))


# --- What both have -----------------------------------------------------------


def _take(intake: Intake, message: Any, where: str, at: datetime | None) -> None:
    """Take in a message; a reply ends the wait for what was called before it."""
    if not _is_message(message) or message["role"] not in ("user", "assistant"):
        intake.add("user", [intake.keep(f"{where}: of neither side", message)], at)
        return
    rest = dict(message)
    role, content = rest.pop("role"), rest.pop("content")
    if role == "assistant":
        intake.close_calls()
    metadata = rest.pop("metadata", None) or {}
    usage = dict(metadata.get("usage") or {})
    intake.add(role, [*items_of(intake, role, content, where)], at, _usage(usage))
    rest.pop("type", None)  # "message", in TypeScript
    intake.leave_rest("messages", rest)
    intake.leave_rest("messages", {k: v for k, v in metadata.items() if k != "usage"})


def _usage(given: Mapping[str, Any]) -> Usage | None:
    counts = {
        "input_tokens": given.get("inputTokens"),
        "output_tokens": given.get("outputTokens"),
        "cache_read_tokens": given.get("cacheReadInputTokens"),
        "cache_write_tokens": given.get("cacheWriteInputTokens"),
    }
    known = {key: count for key, count in counts.items() if isinstance(count, int)}
    return Usage(**known) if any(known.values()) else None


def _leave_inner(intake: Intake, managed: Data, interrupted: Data) -> None:
    """Name what a conversation manager and an interrupt know, and take its results."""
    managed.pop("__name__", None)
    intake.leave_rest("conversation manager", managed)
    execution = interrupted.get("pending_tool_execution") or {}
    results = execution.get("completed_tool_results") or []
    results = results or (interrupted.get("context") or {}).get("tool_results") or []
    blocks = [{"toolResult": result} for result in results]
    intake.add("user", [*items_of(intake, "user", blocks, "interrupt")])
    for each in (interrupted.get("interrupts") or {}).values():
        asked = f"{each.get('name')!r}, reason {each.get('reason')!r}"
        intake.leave(f"the interrupt {asked}: nobody is asked here")


def _object(path: Path) -> Data:
    found = _read(path)
    if not isinstance(found, dict):
        raise MinagentError(problem=f"{path.name} is no JSON object")
    return found


def _read(path: Path) -> Any:
    _refuse_link(path)
    try:
        return read_json(path.read_text("utf-8"), path.name)
    except UnicodeDecodeError as error:
        raise MinagentError(problem=f"{path.name} is no text: {error}") from error


def _refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise MinagentError(problem=f"{path.name} is a link to elsewhere; not read")
