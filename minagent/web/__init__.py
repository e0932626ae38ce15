"""A chat over HTTP, with server-sent events. It needs the extra `web`.

    app = create_app(agent)
    await Server(app).serve()

Everything is JSON, and every path is below `/api`. Ids of sessions are made by the
server, and a session is its user's: another's is a 404, as one that is not there.

    GET    /me                      user_id, agent
    POST   /sessions                make one: 201
    GET    /sessions?limit&after    sessions in the order in which they were made, each
                                    with its title, and how many calls are `waiting`;
                                    and `next`, the `after` of the page behind these
    GET    /sessions/ID             all of one: events, cards, pending, running
    DELETE /sessions/ID             204; a run in progress is cancelled
    POST   /sessions/ID/messages    {"text": …}, or {} to go on; shows the run
    POST   /sessions/ID/decisions   {"decisions": [{"tool_call_id", "verdict"}]}; shows
                                    the run. A verdict is `approve` (with "arguments"
                                    if other ones), `deny` ("reason") or `answer`
                                    ("answer"). Send the question's "fingerprint" and
                                    "path" along
    GET    /sessions/ID/follow      shows what happens, from `Last-Event-ID` (or
                                    ?after=) on, until the client leaves; with
                                    ?cards=true also what changes on a page
    POST   /sessions/ID/cancel      {"cancelled": whether there was a run}
    POST   /sessions/ID/fork        {"at": event id}, or {} for now: 201

A run is shown as server-sent events, `opened` first and `ended` last; `follow.py` says
what they are. Once a stream has begun, its input is stored, and the run is the
server's: whoever leaves finds it again. Who sends `Accept: application/json` gets 202
and the run's id, and no stream.

Several servers may share a store. What one of them stores, those who follow on another
see within a second; deltas, progress, `running` and cancel are the business of the one
where the run is.

An error is `{"error": {"type": …, "message": …}}`. Of two who decide about one call,
the second gets 409 and `AlreadyDecidedError`. `/openapi.json` says it to programs.

The files: `app.py` has the routes, `runs.py` the runs in progress, `follow.py` what a
client is shown of them, `sse.py` and `wire.py` the form, `safety.py` what is refused,
`openapi.py` what may be sent, and `server.py` a server that ends when it is told to.
"""

try:
    import starlette as _starlette  # noqa: F401
    import uvicorn as _uvicorn  # noqa: F401
except ModuleNotFoundError as error:
    missing = str(error.name).partition(".")[0]
    if missing not in ("starlette", "uvicorn"):
        raise
    raise ModuleNotFoundError(
        f"minagent.web needs {missing}: pip install 'minagent[web]'", name=missing
    ) from error

from minagent.web.app import Authenticate, create_app
from minagent.web.safety import LOOPBACK
from minagent.web.server import Server

__all__ = ["LOOPBACK", "Authenticate", "Server", "create_app"]
