"""Chapter 10, your turn: a compaction rule for one tool, in front of a limit.

Check it with `pytest chapters/ch10_window --mine`.
"""

from minagent import ToolCall, ToolResult
from minagent.windows import Window


def brief(call: ToolCall, result: ToolResult) -> str | None:
    """Return what is left of an old search for hotels, or None to leave it as it is.

    The tool `find_hotels` takes a `city` and returns a list of hotels. In its result,
    `content` is that list in JSON, such as

        [{"id": "h1", "name": "Anker", "price": 120, "about": "A quiet house. ..."}]

    Later the user may still say "book the first one", so an id, a name and a price are
    worth keeping. For that search in Oslo the text is

        find_hotels found in Oslo: h1 Anker 120

    With more hotels there is `, ` between them, and the order stays: "the first one" is
    still the first.

    None is right

    - for the result of any other tool;
    - for a result whose `status` is not "success": the model should read what failed;
    - for a content of another form, such as an older version of your program may have
      stored: no JSON, no list, or a hotel in it without one of the three;
    - if the text would be no shorter than the content.

    Args:
        call: What the model asked for.
        result: What came of it.
    """
    raise NotImplementedError("brief() does not shorten any result yet")


def windows(limit: int) -> list[Window]:
    """Return the callbacks of the agent, for `before_llm_callbacks`.

    Results of older turns are shown as `brief` says; those of the newest turn are shown
    in full. If that is still more than `limit` tokens, older turns are left out.

    The order matters: a turn that fits once its results are short should not be lost.

    Args:
        limit: How many tokens the model is shown at most, as `keep_tokens` counts them.
    """
    raise NotImplementedError("windows() returns no callbacks yet")
