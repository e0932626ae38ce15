"""Chapter 07, a solution: two questions wait, and a page lets people decide one."""

from minagent import (
    Agent,
    AlreadyDecidedError,
    Session,
    ToolConfirmation,
    pending_tool_calls,
)


def inbox(session: Session) -> dict[str, str]:
    """Return what a person is asked: the question of each waiting call, by its id."""
    return {
        pending.tool_call_id: pending.confirmation_message
        for pending in pending_tool_calls(session)
    }


async def click(
    agent: Agent, session_id: str, tool_call_id: str, *, yes: bool, by: str
) -> str:
    """Take one person's decision about one call, and return what the page says next."""
    decision = ToolConfirmation(tool_call_id=tool_call_id, approved=yes, by=by)
    try:
        result = await agent.run(session_id=session_id, tool_confirmations=[decision])
    except AlreadyDecidedError:
        return "Somebody was faster."
    questions = inbox(result.context.session).values()
    if questions:
        return "Still waiting: " + " and ".join(questions)
    return str(result.output)
