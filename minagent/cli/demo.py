"""`minagent demo`: runs that are one conversation, a tool that asks, and a memory.

Two processes tell the story. The first is the command. It starts the second one for
each act, as `python -m minagent.cli.demo recall FOLDER MODEL`, `... decide ...` and
`... remember ...`. They share the folder, with two SQLite files in it, and nothing
else. Nothing is staged: what is shown is what the agent returned.

Read the acts from `run` on; `Stage`, in `stage.py`, has the agent and the printing.
"""

import re
import signal
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from minagent import (
    MinagentError,
    PendingToolCall,
    ToolConfirmation,
    pending_tool_calls,
)
from minagent.cli.stage import FILE, LOCAL, OFFLINE, Stage

_RED = re.compile(r"\bred\b", re.IGNORECASE)  # "You have not shared it" is no colour
_QUESTION = "approve or deny? [approve] "
_ANSWERS = {"": True, "approve": True, "a": True, "yes": True, "y": True}
_ANSWERS |= {"deny": False, "d": False, "no": False, "n": False}


def run(model: str = OFFLINE) -> int:
    """Tell the story, and return the exit code: 0 if all went as it should.

    Args:
        model: `offline`, `local`, or the name of a model at the Anthropic API.
    """
    with tempfile.TemporaryDirectory(prefix="minagent-demo-") as folder:
        stage = Stage(Path(folder), model)
        before = signal.signal(signal.SIGINT, lambda *_: stage.stop())
        network = {OFFLINE: "No key, no network.", LOCAL: "No key, no network."}
        begin = network.get(model, f"The model is {model}, at the Anthropic API.")
        stage.say(f"{begin} Sessions are kept in one SQLite file:")
        stage.line(str(stage.database))
        acts = (_recall, _approval, _memory)
        exit_code = next(filter(None, (_told(stage, act) for act in acts)), 0)
        signal.signal(signal.SIGINT, before)
    if exit_code == 0:
        stage.say("The files are removed again. The agent's loop is minagent/agent.py.")
    return exit_code


def _told(stage: Stage, act: Callable[[Stage], int]) -> int:
    """Tell an act; if the model cannot be had, say so in its own words."""
    try:
        return act(stage)
    except _model_errors(stage.model) as error:
        stage.say(f"{stage.model} could not be asked:")
        for text in (str(error), *getattr(error, "__notes__", ())):
            for line in text.splitlines():
                stage.line(line.strip())
        return 1


def _model_errors(model: str) -> tuple[type[Exception], ...]:
    """Return what may be raised where a model is not to be had."""
    if model == OFFLINE:
        return (MinagentError,)
    return (MinagentError, ImportError, import_module("anthropic").AnthropicError)


def _recall(stage: Stage) -> int:
    stage.act("Act 1: two runs, one conversation")
    stage.say(
        "A program forgets when it ends. A session does not: it is a log of what was "
        "said and done, kept under an id and stored step by step."
    )
    stage.process("first process")
    stage.ask(f"Hello, my name is {stage.name}.", stage.name.lower())
    stage.say("The program starts again. All that it has now is the file.")
    return stage.start_second_process("recall")


def _recall_in_second_process(stage: Stage) -> int:
    stage.process("second process")
    name, known = stage.name, stage.name.lower()
    recalled = stage.ask("What is my name?", known).output or ""
    control = stage.ask("What is my name?", "bob").output or ""
    if name not in recalled or name in control:
        expected = f'"{known}" should know the name, "bob" not'
        stage.say(f"The recall did not happen: {expected}.")
        return 1
    stage.say("Runs with one session id are one conversation; another id is another.")
    return 0


def _approval(stage: Stage) -> int:
    stage.act("Act 2: stop and ask")
    stage.say(
        "The tool delete_file has requires_confirmation=True. When the model calls it, "
        "it is not run: the question is stored in the session, and the run ends. No "
        "process has to wait until a person has time."
    )
    if stage.model == LOCAL:
        stage.say("The local model cannot call tools; the offline one plays this act.")
    stage.file.touch()
    stage.process("first process")
    stage.ask(f"Please run delete_file path={FILE}", "files")
    stage.tell_what_happened()
    stage.say("The program starts again, and finds the question in the file.")
    if exit_code := stage.start_second_process("decide"):
        return exit_code
    stage.say(
        "On the first process's screen the question still stands, and somebody clicks "
        "there, too: the same decision, once more."
    )
    stage.process("first process")
    if not stage.is_refused_once_more("files"):
        stage.say("It was taken twice. That must never happen.")
        return 1
    stage.tell_what_happened()
    stage.act('What the file holds under "files"')
    stage.draw("files")
    return 0


def _decide_in_second_process(stage: Stage) -> int:
    stage.process("second process")
    [pending] = pending_tool_calls(stage.session("files"))
    stage.decide("files", _decision(stage, pending))
    stage.tell_what_happened()
    return 0


def _memory(stage: Stage) -> int:
    stage.act("Act 3: what helps in the next conversation")
    stage.say(
        "A session is one conversation; a memory helps in the next. After a run, what "
        "was said is added to a second file, word by word. Before another run, the "
        "model is told what fits the question, if it is from the same user: the agent "
        "has before_llm_callbacks=[recall(memory)]."
    )
    if stage.model == LOCAL:
        stage.say(
            "The local model is too small for it; the offline one plays this act."
        )
    stage.process("first process")
    stage.remember(stage.ask("My kayak is red.", "monday", "ann"))
    stage.say("The program starts again. It is another day, and another session.")
    if exit_code := stage.start_second_process("remember"):
        return exit_code
    stage.act('What the model was told in "friday"')
    stage.draw("friday", notes_only=True)
    return 0


def _memory_in_second_process(stage: Stage) -> int:
    stage.process("second process")
    recalled = stage.ask("What is my kayak?", "friday", "ann").output or ""
    control = stage.ask("What is my kayak?", "sunday", "bob").output or ""
    if not _RED.search(recalled) or _RED.search(control):
        stage.say('The recall did not happen: "ann" should know the colour, "bob" not.')
        return 1
    stage.say(
        "A memory is one user's. What the model is told of it stands in the session."
    )
    return 0


def _decision(stage: Stage, pending: PendingToolCall) -> ToolConfirmation:
    """Ask the person at the terminal, or decide if there is none."""
    stage.line(pending.confirmation_message, "bold yellow")
    if not all(each and each.isatty() for each in (sys.stdin, sys.stdout)):
        stage.line(
            "(There is no terminal to ask at, so the default is taken: approve.)"
        )
        return pending.approve(by="default")
    try:
        word = stage.input(_QUESTION)
        while word.lower() not in _ANSWERS:
            stage.line('Please type "approve" or "deny".')
            word = stage.input(_QUESTION)
        if _ANSWERS[word.lower()]:
            return pending.approve(by="you")
        return pending.deny(stage.input("Why not? ") or None, by="you")
    except EOFError:
        stage.line("(No answer is not a yes: denied.)")
        return pending.deny("nobody answered", by="default")


if __name__ == "__main__":
    _, act, folder, model = sys.argv
    acts = {
        "recall": _recall_in_second_process,
        "decide": _decide_in_second_process,
        "remember": _memory_in_second_process,
    }
    sys.exit(_told(Stage(Path(folder), model), acts[act]))
