"""Objects in a bucket of Amazon S3, or of a server that speaks its language.

All hangs on one header: a PUT with `If-None-Match: *` is refused if the key is taken.
Amazon keeps that promise. A server that ignores the header would lose saves without a
word, so hold any other one to `minagent.testing.StorageContract` first.

Read `S3Storage` from top to bottom; `_Client` says how long a connection lives, and at
the end stands how a key is written in a bucket. It needs the extra `s3`. This file
knows nothing of sessions, and of credentials only that the client finds them itself.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from minagent.errors import KeyTakenError, StoreClosedError, StoreUnavailableError
from minagent.stores.storage import Storage, check_key, check_limit

try:
    import aiohttp
    from aiobotocore.config import AioConfig  # type: ignore[import-untyped]
    from aiobotocore.session import AioSession  # type: ignore[import-untyped]
    from botocore.exceptions import (  # type: ignore[import-untyped]
        BotoCoreError,
        ClientError,
        NoCredentialsError,
        PartialCredentialsError,
    )
    from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]
except ModuleNotFoundError as error:
    missing = str(error.name).partition(".")[0]
    if missing not in ("aiobotocore", "aiohttp", "botocore"):
        raise
    raise ModuleNotFoundError(
        f"minagent.stores.s3 needs {missing}: pip install 'minagent[s3]'", name=missing
    ) from error

PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8)
"""How many seconds to wait before each new try, while others create the same key."""

MOST_BYTES = 1_024
"""How long a key in a bucket may be. Source: Amazon S3 User Guide, "Naming objects"."""

MOST_KEYS = 1_000
"""How many keys one answer lists. Source: Amazon S3 API, `ListObjectsV2`."""

UNSPEAKABLE = "[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]"
"""What no key has, and what the XML of an answer has no word for."""


class S3Storage(Storage):
    """Keeps each object in an object of a bucket, for any number of machines.

    The bucket must be there. Credentials come from where every client of Amazon looks
    for them: `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, `~/.aws`, the machine's
    role. They must allow `s3:GetObject`, `s3:PutObject`, `s3:DeleteObject`, and
    `s3:ListBucket`: without the last, an object that is not there looks forbidden.

    The client tries again by itself after an error of the network. So where an answer
    was lost, `create` may meet the object that it has just made, and raise
    `KeyTakenError`; whoever must know (as `BlobSessionManager` does) reads it and finds
    its own. A call that is cancelled may have been carried out, or be so later.

    In a bucket that keeps versions, or locks objects, what is deleted or replaced is
    still there for those who may see old versions.

    Args:
        bucket: The bucket's name.
        prefix: A folder in the bucket: only keys below it are seen and made. Where it
            has at most 140 bytes, `BlobSessionManager` can store every session id.
        endpoint: Where another server than Amazon's is, such as
            `http://localhost:9000`; None means what the environment says.
        region: The bucket's region; None means what the environment says.
        config: What else the client shall know: timeouts, retries, proxies.

    Raises:
        ValueError: The bucket, the prefix or the endpoint cannot be one.
    """

    def __init__(
        self,
        bucket: str,
        *,
        prefix: str = "",
        endpoint: str | None = None,
        region: str | None = None,
        config: AioConfig | None = None,
    ) -> None:
        if not bucket or ("/" in bucket and not bucket.startswith("arn:")):
            raise ValueError(f"{bucket!r} is no bucket; a folder in it is the prefix")
        prefix = prefix.strip("/")
        if prefix:
            check_key(prefix)
        if {".", ".."} & {*prefix.split("/")}:
            raise ValueError(f"the prefix {prefix!r} has a part of dots alone")
        if endpoint is not None and not re.match("https?://.", endpoint):
            raise ValueError(
                f"the endpoint {endpoint!r} does not begin with http(s)://"
            )
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        standard = AioConfig(retries={"mode": "standard"})
        self._options = {
            "endpoint_url": endpoint,
            "region_name": region,
            "config": standard if config is None else standard.merge(config),
        }
        self._clients: dict[asyncio.AbstractEventLoop, _Client] = {}
        self._closed = False

    async def create(self, key: str, data: bytes) -> None:
        place = self._place(key)
        async with self._client() as client:
            for pause in (*PAUSES, None):
                try:
                    await client.put_object(**place, Body=data, IfNoneMatch="*")
                    return
                except ClientError as error:
                    if _code(error) == "PreconditionFailed":
                        raise KeyTakenError(key) from None
                    # Amazon answers so while another creation of the key is on its way,
                    # and does not say which of them will win.
                    if _code(error) != "ConditionalRequestConflict" or pause is None:
                        raise
                await asyncio.sleep(pause)

    async def read(self, key: str) -> bytes | None:
        place = self._place(key)
        async with self._client() as client:
            try:
                found = await client.get_object(**place)
            except ClientError as error:
                if _code(error) == "NoSuchKey":
                    return None
                raise
            async with found["Body"]:
                data: bytes = await found["Body"].read()
                return data

    async def replace(self, key: str, data: bytes) -> None:
        place = self._place(key)
        async with self._client() as client:
            await client.put_object(**place, Body=data)

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int | None = None
    ) -> "list[str]":
        check_limit(limit)
        asked: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._cut(prefix)}
        if after:
            asked["StartAfter"] = self._cut(after)
        found: list[str] = []
        async with self._client() as client:
            while True:
                if limit is not None:
                    asked["MaxKeys"] = min(limit - len(found), MOST_KEYS)
                page = await client.list_objects_v2(**asked)
                if "IsTruncated" not in page:
                    raise ResponseParserError("the answer is no list of keys")
                names = [each["Key"] for each in page.get("Contents", ())]
                keys = [key_of_name(name[len(self._prefix) :]) for name in names]
                # What was asked may have been cut; and what is no key is not ours.
                found += [
                    key
                    for key in keys
                    if key and key.startswith(prefix) and key > (after or "")
                ]
                if len(found) == limit or not page["IsTruncated"]:
                    return found
                asked["ContinuationToken"] = page["NextContinuationToken"]

    async def delete(self, key: str) -> None:
        place = self._place(key)
        async with self._client() as client:
            await client.delete_object(**place)

    async def aclose(self) -> None:
        self._closed = True
        here = self._clients.pop(asyncio.get_running_loop(), None)
        # Those of other event loops are closed there, as soon as nobody uses them.
        self._clients.clear()
        if here is not None:
            await here.aclose()

    def _place(self, key: str) -> dict[str, str]:
        check_key(key)
        name = self._prefix + name_of_key(key)
        if (length := len(name.encode())) > MOST_BYTES:
            raise ValueError(
                f"the key {key!r:.80} has {length} bytes where the prefix "
                f"{self._prefix!r:.80} is before it; S3 takes {MOST_BYTES:,}"
            )
        return {"Bucket": self._bucket, "Key": name}

    def _cut(self, text: str) -> str:
        """Return so much of a text's beginning as a server can be asked about."""
        legal = re.split(UNSPEAKABLE, text, maxsplit=1)[0]
        name = self._prefix + name_of_key(legal)
        return name.encode()[:MOST_BYTES].decode(errors="ignore")

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[Any]:
        """Give the client of this event loop, and the named errors for its own."""
        if self._closed:
            raise StoreClosedError(store=type(self).__name__)
        try:
            async with self._here().used() as client:
                yield client
        except (
            BotoCoreError,
            ClientError,
            ResponseParserError,
            aiohttp.ClientError,
        ) as error:
            place = f"s3://{self._bucket}/{self._prefix}".rstrip("/")
            problem = self._problem(error)
            raise StoreUnavailableError(place=place, problem=problem) from error

    def _here(self) -> "_Client":
        loop = asyncio.get_running_loop()
        found = self._clients.get(loop)
        if found is None:
            for each in [*self._clients]:
                if each.is_closed():
                    self._clients.pop(each, None)
            found = self._clients[loop] = _Client(self._options)
        return found

    def _problem(self, error: Exception) -> str:
        if isinstance(error, NoCredentialsError | PartialCredentialsError):
            return f"{error}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        if isinstance(error, ClientError) and _code(error) == "NoSuchBucket":
            return f"there is no bucket {self._bucket!r}; make it first"
        return str(error) or type(error).__name__


class _Client:
    """The client of one event loop: made when it is first used, closed when it can be.

    It lives in an async generator. Where nobody closes it, the event loop does so: when
    nobody holds it any more, and at the latest when `asyncio.run` comes to its end.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._living: AsyncGenerator[Any, None] | None = None
        self._client: Any = None
        self._making = asyncio.Lock()
        self._users = 0
        self._unused = asyncio.Event()
        self._unused.set()

    @asynccontextmanager
    async def used(self) -> AsyncIterator[Any]:
        self._users += 1
        self._unused.clear()
        try:
            async with self._making:
                if self._client is None:
                    living = _living_client(self._options)
                    self._client = await anext(living)
                    self._living = living
            yield self._client
        finally:
            self._users -= 1
            if not self._users:
                self._unused.set()

    async def aclose(self) -> None:
        # A call that is at work comes to its end, and its caller is told the truth.
        await self._unused.wait()
        if self._living is not None:
            await self._living.aclose()


async def _living_client(options: dict[str, Any]) -> AsyncGenerator[Any, None]:
    # A session of its own: what one remembers of credentials is for one event loop.
    session = AioSession()
    session.register_component("data_loader", _loader())
    async with session.create_client("s3", **options) as client:
        yield client


@cache
def _loader() -> Any:
    """Return what reads the description of S3 from files: slowly, so only once."""
    return AioSession().get_component("data_loader")


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code"))


# --- Names in a bucket --------------------------------------------------------


def name_of_key(key: str) -> str:
    """Return how a key is written in a bucket, behind the prefix.

    As it is, but for parts that begin with a dot: a `_` stands behind that dot. For S3
    refuses some names with a part `..`, and other servers take it for a path. The order
    of the names is that of the keys.
    """
    return re.sub(r"(^|/)\.", r"\1._", key)


def key_of_name(name: str) -> str | None:
    """Return the key that is written so, or None if none is."""
    key = re.sub(r"(^|/)\._", r"\1.", name)
    try:
        check_key(key)
    except ValueError:
        return None
    return key if name_of_key(key) == name else None
