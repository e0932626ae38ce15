"""A solution of exercise 03."""

from typing import Literal

from pydantic import BaseModel

from minagent import Tool, tool


class Address(BaseModel):
    """Where a parcel goes.

    Attributes:
        street: The street, and the number of the house.
        city: The city.
    """

    street: str
    city: str


def shipping_tool() -> Tool[..., str]:
    """Return a tool that ships a parcel."""

    @tool
    def ship(
        item: str, speed: Literal["slow", "fast"], to: Address, note: str | None = None
    ) -> str:
        """Ship a parcel to an address."""
        sentence = f"{item} goes {speed} to {to.street}, {to.city}."
        return sentence if note is None else f"{sentence} Note: {note}"

    return ship
