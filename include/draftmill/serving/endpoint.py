"""What a user of the server is told about it, and how it asks. No heavy imports: generation and simulator use this file alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from draftmill.errors import TemporaryError


class ServerGone(TemporaryError):  # noqa: N818 - reads as what happened, not as an error of the caller
    """The server died and could not be brought back now; what was generated is kept and a retry continues."""


@dataclass(frozen=True)
class Endpoint:
    """A server that was ready when this was read.

    base_url: `http://HOST:PORT`, without a slash at the end.
    api_key: what requests carry as `Authorization: Bearer`; None where the server asks for none. Never printed.
    model_path, served_model_name, version: as the server itself reports them.
    fingerprint: hash of version, model and arguments; equal fingerprints mean answers from equal servers.
    incarnation: counts the server processes of this workspace; a restart raises it.
    kv_capacity_tokens: tokens the KV cache holds in all.
    context_length: tokens of prompt and answer together, at most.
    max_req_input_len: tokens of a prompt, at most.
    vocab_size: token ids from 0 to vocab_size - 1 may be sent; any other id kills the server.
    The last four are None where the server or its model does not say.
    """

    base_url: str
    api_key: str | None = field(repr=False)
    model_path: str
    served_model_name: str
    version: str
    fingerprint: str
    incarnation: int
    kv_capacity_tokens: int | None
    context_length: int | None
    max_req_input_len: int | None
    vocab_size: int | None


class ServerSource(Protocol):
    """Where a holder of a lease gets its server from, again after each restart."""

    async def endpoint(self, newer_than: int = -1, timeout_s: float | None = None) -> Endpoint:
        """Wait for a ready server whose incarnation is above `newer_than`.

        Raises ServerGone (a retry helps) or PermanentError (a person must change something), with the diagnosis, where the
        supervisor gave up, and ServerGone after `timeout_s` seconds.
        """
        ...

    async def report_wedged(self, incarnation: int, why: str) -> None:
        """Say that this incarnation answers but generates nothing. It is diagnosed and restarted once, whoever reports it first."""
        ...
