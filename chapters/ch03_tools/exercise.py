"""Exercise 03: a tool with richer types."""

from pydantic import BaseModel

from minagent import Tool


class Address(BaseModel):
    """Where a parcel goes. It is written for you.

    Attributes:
        street: The street, and the number of the house.
        city: The city.
    """

    street: str
    city: str


def shipping_tool() -> Tool[..., str]:
    """Return a tool that ships a parcel.

    Define a function `ship` in here, put `@tool` before it, and return it. It has a
    docstring for the model, and four parameters, by these names:

        item   a text
        speed  "slow" or "fast", and nothing else (`typing.Literal`)
        to     an `Address`
        note   a text, or None, which it is if the model leaves it out

    It returns a sentence, and the note behind it if there is one:

        lamp goes fast to Main Street 1, Oslo.
        lamp goes fast to Main Street 1, Oslo. Note: fragile
    """
    raise NotImplementedError("shipping_tool is not written yet")
