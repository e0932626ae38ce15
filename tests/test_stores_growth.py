"""What is stored grows with what is said, and not with its square, on every store."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from stores import EVERY, Place, params

from minagent import Event, Message

pytestmark = pytest.mark.heavy


def size_of(store: str, folder: Path) -> int:
    """Return how many bytes a store keeps that belongs to a folder."""
    match store:
        case "s3":
            import botocore.session
            from s3 import bucket_of, endpoint

            client = botocore.session.get_session().create_client(
                "s3", endpoint_url=endpoint()
            )
            pages = client.get_paginator("list_objects_v2")
            found = pages.paginate(Bucket=bucket_of(folder))
            return sum(each["Size"] for page in found for each in page["Contents"])
        case "postgres":
            from postgres import execute, schema_of, server

            schema = schema_of(folder)
            tables = [f"pg_total_relation_size('{schema}.{t}')" for t in TABLES]
            full = [f"VACUUM FULL {schema}.{table}" for table in TABLES]
            [[size]] = execute(server(), *full, f"SELECT {' + '.join(tables)}")
            return int(size)
        case _:
            files = [path for path in folder.rglob("*") if path.is_file()]
            return sum(path.stat().st_size for path in files)


TABLES = ("sessions", "events")


def said(turn: int) -> list[Event]:
    question = Message(role="user", content=f"{turn}. " + "What did I say? " * 12)
    answer = Message(role="assistant", content=f"{turn}. " + "You said so. " * 30)
    return [
        Event(author="user", content=(question,)),
        Event(author="assistant", content=(answer,)),
    ]


@pytest.mark.parametrize("store", params(*EVERY[1:]))
async def test_twice_as_many_turns_take_no_more_than_twice_the_room(
    store: str, tmp_path: Path
) -> None:
    sizes = []
    for turns in (range(200), range(200, 400)):
        async with AsyncExitStack() as opened:  # closed, so that SQLite's log is empty
            sessions = await Place(store, tmp_path, opened).open()
            session = await sessions.get_or_create("ada")
            for turn in turns:
                session.append(*said(turn))
                await sessions.save(session)
        sizes.append(size_of(store, tmp_path))

    assert sizes[1] <= 2.2 * sizes[0]
