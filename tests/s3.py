"""An S3 server for tests: moto's, over real HTTP, on a port of its own.

`endpoint()` starts it within this process, once; the processes that this one starts
find it as well. `server_process()` is one that outlives whoever is killed. Every test
takes a bucket for itself.
"""

import hashlib
import logging
import os
import secrets
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from threading import Lock, Thread
from urllib.request import Request, urlopen
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

ENDPOINT = "MINAGENT_TEST_S3"
"""The environment variable that tells where the server is."""

SURROUNDINGS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    # No files of the machine that the tests run on, and no role.
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}


def endpoint() -> str:
    """Return the address of the server, and start it if there is none yet."""
    if ENDPOINT not in os.environ:
        _leave_the_machine()
        os.environ[ENDPOINT] = _start()
    return os.environ[ENDPOINT]


def new_bucket(place: str | None = None) -> str:
    """Make a bucket and return its name.

    Args:
        place: The address of the server; None means that of `endpoint()`.
    """
    return _make(place or endpoint(), f"test-{secrets.token_hex(8)}")


def bucket_of(folder: Path) -> str:
    """Return the bucket that belongs to a test's own folder, also in a new process."""
    name = hashlib.sha256(str(folder).encode()).hexdigest()[:32]
    return _make(endpoint(), name)


def fill(bucket: str, keys: Iterable[str]) -> None:
    """Put empty objects into a bucket of this process's server, fast."""
    from moto.s3.models import s3_backends

    backend = s3_backends["123456789012"]["aws"]
    for key in keys:
        backend.put_object(bucket, key, b"")


@contextmanager
def server_process() -> Iterator[str]:
    """Run a server in a process of its own, and give its address.

    What is started meanwhile finds the credentials in the environment.
    """
    _leave_the_machine()
    with subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield process.stdout.readline().decode().strip()
        finally:
            process.stdin.close()  # it ends then, as it does with this process


def _leave_the_machine() -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ.update(SURROUNDINGS)


def _start() -> str:
    # Imported here, since that takes seconds, and a second process has no use for it.
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class KeptOpen(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"  # else each request has its own connection

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it tells of each request
    app = _OneAtATime(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=KeptOpen)
    Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


class _OneAtATime:
    """Does one request after the other, and none that came in part.

    moto looks whether a key is taken, and then takes it: of 64 racers it has let two
    win. A real server lets nobody come between, and stores no half of a body whose
    sender was killed.
    """

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app
        self._lock = Lock()

    def __call__(
        self, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length)
        if len(body) < length:
            start_response("400 Bad Request", [])
            return []
        environ["wsgi.input"] = BytesIO(body)
        with self._lock:
            return self._app(environ, start_response)


def _make(place: str, bucket: str) -> str:
    with urlopen(Request(f"{place}/{bucket}", method="PUT")):
        return bucket


if __name__ == "__main__":
    print(_start(), flush=True)
    sys.stdin.read()
