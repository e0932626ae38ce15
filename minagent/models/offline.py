"""A model without a key: rules, and nothing but the transcript that it is given.

    agent = Agent(OfflineModel(), tools=[delete_file])

It is told facts ("My name is Ada.", "Remember that the meeting is on Monday.") and is
asked for them ("What is my name?"). It calls a tool that a message asks for by name
(`delete_file path=old.txt`; see `named_calls.py`) and tells what became of it.
Everything else gets one honest sentence.

The rules are two tables, `_FACTS` and `_QUESTIONS`, and `_reply` says in which order
things are tried. The model has no memory of its own and knows nothing of the world;
what is not in the transcript, it says that it was not told. So it shows what a session
is worth.
"""

import asyncio
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from minagent.events import ContentItem, Message, Note, ToolCall, ToolResult, Usage
from minagent.model import Emit, ModelRequest, ModelResponse, TextDelta, ToolInputDelta
from minagent.models.named_calls import named_calls
from minagent.transcript import Turn

HONEST = (
    "I am an offline model: I can recall what you told me, "
    "and call a tool that you name."
)


class OfflineModel:
    """Answers by rules, from the transcript alone: the same request, the same reply.

    A newer fact replaces an older one, and what the user says counts more than what a
    Note recalls. Usage counts words as tokens.

    Args:
        delay_seconds: How long to wait after each word, so that people see it stream.
    """

    def __init__(self, *, delay_seconds: float = 0.0) -> None:
        self._delay_seconds = delay_seconds

    async def generate(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Reply, streamed word by word."""
        text, calls = _reply(request)
        for word in re.findall(r"\S+\s*", text):
            emit(TextDelta(word))
            await asyncio.sleep(self._delay_seconds)
        for call in calls:
            sent = json.dumps(call.arguments, ensure_ascii=False)
            emit(ToolInputDelta(call.tool_call_id, call.name, sent))
        said = [Message(role="assistant", content=text)] if text else []
        return ModelResponse(
            (*said, *calls),
            stop_reason="tool_use" if calls else "end_turn",
            usage=_usage(request, text),
            model="offline",
        )


def _reply(request: ModelRequest) -> tuple[str, list[ToolCall]]:
    """Tell what the tools did; then do what the newest message asks for, or answer."""
    turns = request.turns
    last = [item for turn in turns[-1:] for item in turn.content]
    lines = [_report(item) for item in last if isinstance(item, ToolResult)]
    message = _newest_message(turns[-1:])
    calls = list(named_calls(message, request.tools, 1 + _count_of_calls(turns)))
    if not calls and (message or not lines):
        facts = _facts([*_notes(turns), *_messages(turns)])
        lines.append(_answers(message, facts) or _greeting(message, facts) or HONEST)
    return "\n".join(lines), calls


# --- What the transcript holds ------------------------------------------------


def _items(turns: Iterable[Turn]) -> Iterator[ContentItem]:
    for turn in turns:
        if turn.role == "user":
            for event in turn.events:
                yield from event.content


def _messages(turns: Iterable[Turn]) -> list[str]:
    said = [item for item in _items(turns) if isinstance(item, Message)]
    return [item.content for item in said if item.role == "user"]


def _notes(turns: Iterable[Turn]) -> list[str]:
    return [item.text or "" for item in _items(turns) if isinstance(item, Note)]


def _newest_message(last: Iterable[Turn]) -> str:
    """Return what the user said last. A Note asks for nothing."""
    for turn in last:
        for event in reversed(turn.events):
            if said := _messages([Turn(turn.role, (), (event,))]):
                return "\n".join(said)
    return ""


def _count_of_calls(turns: Sequence[Turn]) -> int:
    return sum(isinstance(item, ToolCall) for turn in turns for item in turn.content)


def _usage(request: ModelRequest, reply: str) -> Usage:
    items = [item for turn in request.turns for item in turn.content]
    texts = [item.content for item in items if isinstance(item, Message | ToolResult)]
    read = sum(len(text.split()) for text in [request.instructions or "", *texts])
    return Usage(input_tokens=read, output_tokens=len(reply.split()))


# --- What became of calls -----------------------------------------------------

_OUTCOMES = {
    "error": "failed",
    "denied": "was denied",
    "expired": "expired",
    "replaced": "was replaced",
    "cancelled": "was cancelled",
    "unknown": "has an unknown outcome",
}
_MAX_RESULT_LETTERS = 300
# What the agent's own texts begin with, and the line says already.
_OUTCOME_SAID = re.compile(
    r"(?:Not run: |Outcome )?(?:denied|expired|replaced|cancelled|unknown)\b", re.I
)


def _report(result: ToolResult) -> str:
    """Say in a line what became of a call."""
    text = " ".join(result.content.split())
    if len(text) > _MAX_RESULT_LETTERS:
        text = text[: _MAX_RESULT_LETTERS - 1] + "…"
    if result.status == "success":
        return f"{result.name}: {text}"
    said = _OUTCOME_SAID.match(text)
    reason = text[said.end() :] if said else f": {text}"
    return f"{result.name} {_OUTCOMES[result.status]}{reason}"


# --- Facts and questions ------------------------------------------------------

_THING = ".{1,60}?"
_IS = "(?P<verb>is|are|was|were)"
_VERBS = "live|work|study|like|love|prefer|hate|speak|play"
# "I'm Ada", but not "I'm tired": a name does not begin with a small letter.
_NAME = r"((?-i:(?!OK\b)[^\W\d_a-z][\w'.-]*)(?: (?-i:[^\W\d_a-z][\w'.-]*))*)"

# Other ways to say what the tables below know.
_SAME = [
    (
        rf"(?<!not )(?<!n't )\b(?:call me|I'm|I am) {_NAME}(?=,| and |$)",
        r"my name is \1",
    ),
    (r"\bmy name is now\b", "my name is"),
    (r"\b(?:who am I|what am I called)$", "what is my name"),
    (r"\bthe user's\b", "my"),
    (rf"\bmy ({_THING}) is (?:called|named)\b", r"my \1's name is"),
    (rf"\bmy ({_THING}) (?:called|named)$", r"my \1's name"),
    (rf"\bthe name of my ({_THING})(?= is\b|$)", r"my \1's name"),
    (r"\b(what|who|when|where|how)'s\b", r"\1 is"),
]
# How a fact is told. `about` is what a newer fact has in common with it.
_FACTS = [
    r"\b(?P<fact>(?P<about>my name) is .+?)(?:,|;| \(| and | but |$)",
    rf"\b(?P<fact>(?P<about>I (?:{_VERBS})) .+)",
    rf"\bremember (?:that )?(?P<fact>(?P<about>{_THING}) {_IS} .+)",
    rf"\b(?P<fact>(?P<about>(?:my|our|the) {_THING}) {_IS} .+)",
]
# How a fact is asked for, and what was not told if it was not. Where no words stand for
# that, it need not be a question about a fact.
_QUESTIONS = [
    (
        rf"\b(?P<word>when|where|who|how|(?:what|which|how) \w+) {_IS} "
        rf"(?P<about>(?!your?\b){_THING})$",
        "{word} {about} {verb}",
    ),
    (
        r"(?:^|\bwhat (?:is|are|was|were|did I (?:say|tell you)) "
        r"|\b(?:tell me|remind me of|know|remember|recall|say) (?:what )?)"
        rf"(?P<about>my (?!.* {_IS} ){_THING})(?: is| are| was| were)?$",
        "{about}",
    ),
    (
        r"\b(?P<word>(?:what|which|where|when|who|how)\b.{0,40}?) do (?P<about>I \w+)",
        "{word} {about}",
    ),
    (rf"\bwhat {_IS} (?P<about>(?:the|our) {_THING})$", "{about}"),
    (rf"\bwhat {_IS} (?P<about>{_THING})$", ""),
    (
        rf"\b(?P<word>when|where|who) (?P<about>{_THING}) {_IS}$",
        "{word} {about} {verb}",
    ),
]

# Between sentences, and between the parts of one that tell different things; but not
# after "Dr." or an initial. A tag, as recalled memories have them, is between, too.
_BETWEEN_CLAUSES = re.compile(
    r"(?<=[.!?])(?<!\b[A-Z]\.)(?<!\bDr\.)(?<!\bMr\.)(?<!\bMrs\.)(?<!\bMs\.)\s+"
    r"|\n|<[^<>]*>|; "
    r"|(?:,|,? and|,? but) (?=(?i:I|I'm|my|our|call me|remember|what|where|when|who)\b)"
)
_MAX_CLAUSE_LETTERS = 300  # longer ones tell no simple fact
_POLITE = re.compile(r"^(?:(?:please|can you|could you|would you|will you),? )+", re.I)
_ASKS = re.compile(
    r"(?!remember that )"
    r"(?:(?:what|which|where|when|who|how|tell me|remind me|say|do you)\b|.*\?\W*$)",
    re.I,
)
_FILLER = re.compile(r"(?:,? (?:please|again|now))*[\s.!?,]*$", re.I)
_GREETING = re.compile(r"\s*(?:hello|hi|hey|good (?:morning|evening))\b", re.I)
_MINE = re.compile(r"\b(?:I am|I'm|I|my|mine|me|our)\b", re.I)
_YOURS = {"i am": "you are", "i'm": "you are", "i": "you", "me": "you"}
_YOURS |= {"my": "your", "our": "your", "mine": "yours"}


def _clauses(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a text, each with whether it is a question."""
    straight = text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    for part in _BETWEEN_CLAUSES.split(straight):
        if len(part) <= _MAX_CLAUSE_LETTERS:
            clause = _POLITE.sub("", part.strip())
            asks = _ASKS.match(clause) is not None
            clause = _FILLER.sub("", clause)
            for other, same in _SAME:
                clause = re.sub(other, same, clause, flags=re.IGNORECASE)
            yield clause, asks


def _facts(texts: Iterable[str]) -> dict[str, str]:
    """Return the facts that some texts tell, by what they are about."""
    facts: dict[str, str] = {}
    for text in texts:
        for clause, asks in _clauses(text):
            for pattern in () if asks else _FACTS:
                if found := re.search(pattern, clause, re.IGNORECASE):
                    facts[found["about"].lower()] = _turned(found["fact"])
                    break
    return facts


def _answers(message: str, facts: Mapping[str, str]) -> str:
    """Return the answers to the questions in a message; nothing if it has none."""
    answers = []
    for clause, asks in _clauses(message):
        clause = clause[:1].lower() + clause[1:]
        for pattern, untold in _QUESTIONS if asks else ():
            if found := re.search(pattern, clause, re.IGNORECASE):
                if fact := facts.get(found["about"].lower()):
                    answers.append(f"{fact[0].upper()}{fact[1:]}.")
                elif untold:
                    missing = _turned(untold.format(**found.groupdict()))
                    answers.append(f"You have not told me {missing}.")
                break
    return " ".join(answers)


def _greeting(message: str, facts: Mapping[str, str]) -> str:
    """Return a greeting for a greeting, and for facts that they were taken in."""
    told, sentences = _facts([message]), []
    if _GREETING.match(message):
        told.pop("my name", None)
        name = facts.get("my name", "").removeprefix("your name is ")
        sentences.append(f"Hello, {name}." if name else "Hello.")
    if told:
        sentences.append(f"Noted: {'; '.join(told.values())}.")
    return " ".join(sentences)


def _turned(text: str) -> str:
    """Return what the user says as it is said to the user."""
    return _MINE.sub(lambda word: _YOURS[word[0].lower()], text)
