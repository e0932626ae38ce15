"""A program that runs the code blocks of a chapter, as the cells of a notebook run.

Its input is a JSON list of blocks. They share one namespace and one event loop, and may
`await` at the top. Its output is a JSON list of what each printed. A block that raises
ends the program.
"""

import ast
import asyncio
import inspect
import io
import json
import sys
from contextlib import redirect_stdout
from types import ModuleType


async def main(blocks: list[str]) -> list[str]:
    """Run the blocks, in order."""
    module = sys.modules["__main__"] = ModuleType("__main__")
    printed = []
    for number, block in enumerate(blocks, start=1):
        code = compile(block, f"block {number}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        with redirect_stdout(io.StringIO()) as out:
            result = eval(code, module.__dict__)
            if inspect.isawaitable(result):
                await result
        printed.append(out.getvalue())
    return printed


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(json.load(sys.stdin)))))
