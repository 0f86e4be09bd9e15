"""Timing models of hosts: what a decode step costs and how many tokens the KV cache holds."""

from __future__ import annotations

from dataclasses import dataclass

from draftmill.errors import PermanentError


@dataclass(frozen=True)
class HostProfile:
    """A host as the simulator sees it.

    base_s, per_request_s: a decode step with b running requests takes `base_s + per_request_s * b` seconds and gives each of
    them one token. Fitted to the first host (8x RTX PRO 6000, Kimi-K2.5 INT4): 21 tok/s at 1, 936 at 72, 1,358 at 150.
    kv_tokens: tokens that the KV cache holds, prompts and answers together.
    prefill_tokens_per_s: prompt tokens a second while decoding stands still. An assumption; no measurement is at hand.
    context_length: tokens of prompt and answer together, at most.
    vocab_size: ids below it are valid.
    max_running: requests in the batch, at most (SGLang's own default for a large cache).
    restart_retracted: the work of a retracted request that is redone is all of it, decoding included. Otherwise its tokens are kept
    and what is redone is their prefill, as in SGLang's source.
    """

    name: str
    base_s: float
    per_request_s: float
    kv_tokens: int
    prefill_tokens_per_s: float = 10_000.0
    context_length: int = 262_144
    vocab_size: int = 163_840
    max_running: int = 2_048
    restart_retracted: bool = False

    def step_s(self, running: int) -> float:
        """Seconds of one decode step with `running` requests in the batch."""
        return self.base_s + self.per_request_s * running


HOSTS: dict[str, HostProfile] = {
    profile.name: profile
    for profile in (
        HostProfile("rtx6000-bf16", base_s=0.046, per_request_s=0.00043, kv_tokens=159_000),
        HostProfile("rtx6000-fp8", base_s=0.046, per_request_s=0.00043, kv_tokens=376_000),
        HostProfile("h200", base_s=0.025, per_request_s=0.00010, kv_tokens=2_200_000, prefill_tokens_per_s=40_000.0),
    )
}


def host(name: str) -> HostProfile:
    """The profile called `name`; PermanentError names the known ones."""
    if name not in HOSTS:
        raise PermanentError(f"host: {name!r} is not a simulated host; known: {', '.join(HOSTS)}")
    return HOSTS[name]
