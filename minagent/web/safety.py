"""What is checked before a request is looked at, and what every response says.

- The host must be one that the server is known by. Otherwise a page from elsewhere
  could have its own name point here, and read what it likes (DNS rebinding).
- A request that a browser sends for a page from elsewhere is refused: by its `Origin`,
  or by `Sec-Fetch-Site`. No cookie is needed for such a page to do harm where there is
  no login; so this holds in any case.
- Without `authenticate`, the client must be on this machine.
- A body that says it is too large is refused unread; `read_body` stops at the limit.

A response may be framed by nobody, and its page may run, show and connect to what comes
from this server, and nothing else.

This file knows nothing of sessions.
"""

from collections.abc import Mapping, Sequence
from ipaddress import ip_address

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from minagent.web.wire import refusal

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""The hosts that a server on one's own machine is known by."""

_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    # Even a mistake in the page's own script cannot turn text into a document.
    "require-trusted-types-for": "'script'",
    "trusted-types": "'none'",
}
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "; ".join(f"{k} {v}" for k, v in _POLICY.items()),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""What every response says; those of the API, and the page, are not to be cached."""


class Safety:
    """Checks requests before an app sees them, and adds headers to its responses.

    Args:
        app: The app.
        hosts: The hosts that the server is known by, without port.
        max_body: How large a body may be, in bytes.
        local: Whether clients must be on this machine.
    """

    def __init__(
        self, app: ASGIApp, *, hosts: Sequence[str], max_body: int, local: bool
    ) -> None:
        self._app, self._max_body, self._local = app, max_body, local
        self._hosts = {each.lower() for each in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                secure(MutableHeaders(scope=message))
            await send(message)

        app: ASGIApp = self._app
        if problem := self._problem(scope):
            app = refusal(problem)
        await app(scope, receive, send_with_headers)

    def _problem(self, scope: Scope) -> HTTPException | None:
        headers = Headers(scope=scope)
        host, origin = headers.get("host", "").lower(), headers.get("origin")
        if _without_port(host) not in self._hosts:
            return HTTPException(421, "this server does not go by that host")
        if self._local and not _is_local(scope.get("client")):
            return HTTPException(403, "without a login, this is for its own machine")
        if origin is not None and origin.lower().partition("://")[2] != host:
            return HTTPException(403, "a page from elsewhere may not ask for this")
        site = headers.get("sec-fetch-site", "none")
        opens_page = scope["method"] in ("GET", "HEAD") and scope["path"] == "/"
        if site not in ("none", "same-origin") and not opens_page:
            return HTTPException(403, "a page from elsewhere may not ask for this")
        size = headers.get("content-length", "0")
        if not size.isdecimal() or int(size[:20]) > self._max_body:
            return _too_large(self._max_body)
        return None


def secure(headers: MutableHeaders) -> None:
    """Add to a response's headers what every response says."""
    headers.update(HEADERS)
    headers.setdefault("Cache-Control", "no-store")


async def read_body(request: Request, max_body: int) -> bytes:
    """Return the body of a request.

    Args:
        request: The request.
        max_body: How large it may be, in bytes.

    Raises:
        HTTPException: It is larger, or breaks off.
    """
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > max_body:
                raise _too_large(max_body)
    except ClientDisconnect:
        raise HTTPException(400, "the body breaks off") from None
    return bytes(body)


def _too_large(limit: int) -> HTTPException:
    return HTTPException(413, f"the body is larger than {limit} bytes")


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host


def _is_local(client: tuple[str, int] | None) -> bool:
    """Whether a client is on this machine; on a Unix socket it has no address."""
    if client is None:
        return True
    try:
        return ip_address(client[0]).is_loopback
    except ValueError:
        return False
