"""Objects that are encrypted before they reach another storage.

The object, for other programs. All of it but the nonce and what follows is in the
clear:

    4 bytes     `mina`
    1 byte      the version of this layout, which is 1
    1 byte      how many bytes the key's id has
    1 to 255    the key's id, in UTF-8
    12 bytes    the nonce, chosen at random for each object
    the rest    what AES-256-GCM made of the data, with its tag of 16 bytes behind it

Authenticated beside the data is all that stands before the nonce, and behind it the
name of the object in its storage, in UTF-8.

Why these: AES-GCM is in the library of every language. It is safe for 2^32 objects a
key, after which two random nonces might be alike (NIST SP 800-38D, 8.3): take a new key
before. A key has 256 bits, always: one length leaves nothing to choose wrongly, and a
password or a key in hex, which would be weak, is mostly of another one.

It needs the extra `encryption`. This file knows nothing of sessions, and not where the
keys are kept.
"""

import secrets
from collections.abc import Iterator, Mapping

from minagent.errors import (
    MinagentError,
    MissingKeyError,
    NewerDataError,
    TamperedDataError,
)
from minagent.stores.storage import Storage, check_key

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
except ModuleNotFoundError as error:
    if str(error.name).partition(".")[0] != "cryptography":
        raise
    raise ModuleNotFoundError(
        "minagent.stores.encrypted needs cryptography: "
        "pip install 'minagent[encryption]'",
        name="cryptography",
    ) from error

MAGIC = b"mina"
FORMAT = 1
KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16


class EncryptedStorage(Storage):
    """Keeps objects in another storage, encrypted and authenticated.

    What is found out, as `TamperedDataError`: an object that was changed or cut off,
    that somebody without a key has made, or that stands under another name than it was
    stored under. (One that says it was encrypted with a key that is not here is a
    `MissingKeyError`.) Nothing of it is used.

    What is not found out: objects that were deleted; an object in place of which
    somebody has put back an older one *of the same name*; an older copy of the whole
    storage. The saves of `BlobSessionManager` are created once, under names that are
    never used again, and so have no older ones. What whoever may write to the storage
    can do to a session unseen is therefore: delete its newest saves, put back one that
    was deleted, and put back a text that was redacted.

    What is not hidden: how many objects there are, their sizes, when they were written,
    the ids of the encryption keys, and the objects' names. Those that
    `BlobSessionManager` gives hold ids of sessions; ids of users only as a SHA-256,
    which tells whoever can guess an id that it is there.

    To change to a new key, put it before the old one in `keys` (or name it in `use`)
    in every process; then call `reencrypt`; then drop the old one. Where processes are
    restarted one by one, give all of them the new key at the end of `keys` first.

    Args:
        storage: Where the encrypted objects are kept. It is closed with this one.
        keys: The keys by their ids, each of 32 bytes from a source such as
            `secrets.token_bytes(32)`. All can read.
        use: The id of the key that writes; None means the first one.

    Raises:
        TypeError: `keys` is no mapping of texts to bytes.
        ValueError: There is no key, or one that is none, or none of the id `use`. No
            message tells anything of a key.
    """

    def __init__(
        self, storage: Storage, keys: Mapping[str, bytes], *, use: str | None = None
    ) -> None:
        self._storage = storage
        self._ciphers = dict(_ciphers(keys))
        if not self._ciphers:
            raise ValueError("there is no key; make one with secrets.token_bytes(32)")
        if use is not None and use not in keys:
            raise ValueError("`use` is none of the ids in `keys`")
        self._header = _header(next(iter(keys)) if use is None else use)

    async def create(self, key: str, data: bytes) -> None:
        await self._storage.create(key, self._encrypted(key, data))

    async def read(self, key: str) -> bytes | None:
        found = await self._storage.read(key)
        return None if found is None else self._decrypted(key, found)

    async def replace(self, key: str, data: bytes) -> None:
        await self._storage.replace(key, self._encrypted(key, data))

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int | None = None
    ) -> "list[str]":
        return await self._storage.list(prefix, after=after, limit=limit)

    async def delete(self, key: str) -> None:
        await self._storage.delete(key)

    async def aclose(self) -> None:
        await self._storage.aclose()

    async def reencrypt(self, prefix: str = "") -> int:
        """Encrypt with the writing key what another one has encrypted.

        Each object is replaced by one of the same content, so those that are created
        and never changed are still what they were. A call that was cut off can be
        repeated; what is done already is read, and not written again.

        Others may read and create meanwhile. But what they replace or delete just then
        might come back: let nobody delete or redact sessions until this is done.

        Args:
            prefix: How the keys of the objects begin.

        Returns:
            How many objects were encrypted anew.

        Raises:
            TamperedDataError: An object was changed; those before it are done.
            MissingKeyError: An object's key is not here; those before it are done.
        """
        count = 0
        for key in await self._storage.list(prefix):
            found = await self._storage.read(key)
            if found is not None and not found.startswith(self._header):
                await self.replace(key, self._decrypted(key, found))
                count += 1
        return count

    def _encrypted(self, key: str, data: bytes) -> bytes:
        check_key(key)
        nonce = secrets.token_bytes(NONCE_BYTES)
        cipher, about = self._ciphers[self._header], self._header + key.encode()
        return self._header + nonce + cipher.encrypt(nonce, data, about)

    def _decrypted(self, key: str, found: bytes) -> bytes:
        for header in self._ciphers:
            if found.startswith(header):
                data = self._opened(header, key, found)
                if data is None:
                    raise TamperedDataError(key)
                return data
        # It names no key of ours. If one opens it all the same, the name was changed.
        if any(self._opened(each, key, found) is not None for each in self._ciphers):
            raise TamperedDataError(key)
        raise _problem(key, found)

    def _opened(self, header: bytes, key: str, found: bytes) -> bytes | None:
        """Return what one key makes of an object, or None if it does not fit."""
        start = len(header)
        nonce, rest = found[start : start + NONCE_BYTES], found[start + NONCE_BYTES :]
        try:
            return self._ciphers[header].decrypt(nonce, rest, header + key.encode())
        except (InvalidTag, ValueError):  # the latter: too short to hold a nonce
            return None


def _ciphers(keys: Mapping[str, bytes]) -> Iterator[tuple[bytes, AESGCM]]:
    # No message shows an id: where somebody mixes up the two, that is the key.
    if not isinstance(keys, Mapping):
        raise TypeError("`keys` is no mapping of ids to keys")
    for number, (key_id, key) in enumerate(keys.items(), start=1):
        if not isinstance(key_id, str):
            raise TypeError(f"the id of key number {number} is no str")
        if not isinstance(key, bytes):
            raise TypeError(f"key number {number} is not bytes")
        if len(key) != KEY_BYTES:
            raise ValueError(
                f"key number {number} has {len(key)} bytes, not {KEY_BYTES}; make one "
                "with secrets.token_bytes(32)"
            )
        if not 1 <= len(key_id.encode(errors="replace")) <= 255:
            raise ValueError(f"the id of key number {number} has not 1 to 255 bytes")
        yield _header(key_id), AESGCM(key)


def _header(key_id: str) -> bytes:
    coded = key_id.encode()
    return MAGIC + bytes([FORMAT, len(coded)]) + coded


def _problem(key: str, found: bytes) -> MinagentError:
    """Return what is wrong with an object that none of our keys has made."""
    if not found.startswith(MAGIC) or len(found) < len(MAGIC) + 2:
        return TamperedDataError(key)
    version, length = found[len(MAGIC) : len(MAGIC) + 2]
    if version > FORMAT:
        return NewerDataError(subject=key, found=version, known=FORMAT)
    try:
        key_id = found[len(MAGIC) + 2 :][:length].decode()
    except UnicodeDecodeError:
        return TamperedDataError(key)
    whole = len(_header(key_id)) + NONCE_BYTES + TAG_BYTES
    if version < FORMAT or not key_id or len(found) < whole:
        return TamperedDataError(key)
    return MissingKeyError(key_id, place=key)
