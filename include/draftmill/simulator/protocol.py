"""Bodies of SGLang's native protocol: what `/generate` accepts, and what it and the information endpoints answer.

Names as in sglang 0.5.23; checked against its source and, in the integration tests, against the running server.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from draftmill.simulator.faults import Fault
from draftmill.simulator.profile import HostProfile

VERSION = "0.5.23"
DEFAULT_MAX_NEW_TOKENS = 128

SAMPLING_KEYS = frozenset(
    {
        "max_new_tokens",
        "stop",
        "stop_token_ids",
        "stop_regex",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "frequency_penalty",
        "presence_penalty",
        "repetition_penalty",
        "min_new_tokens",
        "n",
        "json_schema",
        "regex",
        "ebnf",
        "structural_tag",
        "ignore_eos",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "no_stop_trim",
        "custom_params",
        "stream_interval",
        "logit_bias",
        "sampling_seed",
    }
)


class Refused(Exception):  # noqa: N818 - the request is refused, the server is fine
    """A request that gets HTTP 400 with this JSON body."""

    def __init__(self, error: str | dict[str, Any]) -> None:
        super().__init__(str(error))
        self.body = {"error": error}


class Deadly(Exception):  # noqa: N818 - the server dies
    """A token id outside the vocabulary: the real server does not survive it."""


@dataclass(frozen=True)
class GenerateRequest:
    """A checked `/generate` request."""

    rid: str
    input_ids: list[int]
    max_new_tokens: int
    ignore_eos: bool
    stream: bool


def parse_generate(body: Any, profile: HostProfile) -> GenerateRequest:
    """Check a request body. Refused where SGLang answers 400, Deadly where it dies."""
    if not isinstance(body, dict):
        raise Refused("the body must be a JSON object")
    input_ids = _input_ids(body)
    sampling = body.get("sampling_params") or {}
    unknown = sorted(set(sampling) - SAMPLING_KEYS)
    if unknown:
        raise Refused(f"Unexpected keyword argument '{unknown[0]}' in sampling_params")
    max_new_tokens = sampling.get("max_new_tokens", DEFAULT_MAX_NEW_TOKENS)
    if type(max_new_tokens) is not int or max_new_tokens < 0:
        raise Refused({"message": f"max_new_tokens must be at least 0, got {max_new_tokens}."})
    _check_length(len(input_ids), max_new_tokens, profile)
    if min(input_ids) < 0 or max(input_ids) >= profile.vocab_size:
        raise Deadly
    return GenerateRequest(
        rid=body.get("rid") or uuid.uuid4().hex,
        input_ids=input_ids,
        max_new_tokens=max(1, max_new_tokens),
        ignore_eos=bool(sampling.get("ignore_eos")),
        stream=bool(body.get("stream")),
    )


def _input_ids(body: dict[str, Any]) -> list[int]:
    ids = body.get("input_ids")
    if ids is None and isinstance(body.get("text"), str):
        ids = list(body["text"].encode())  # a stand-in for a tokenizer: one id a byte
    if not isinstance(ids, list) or not ids or not all(type(token) is int for token in ids):
        raise Refused({"message": "Either text or a non-empty list of input_ids should be provided."})
    return ids


def _check_length(prompt: int, max_new_tokens: int, profile: HostProfile) -> None:
    context = profile.context_length
    if prompt >= context:
        raise Refused({"message": f"The input ({prompt} tokens) is longer than the model's context length ({context} tokens)."})
    if prompt + max_new_tokens > context:
        message = f"Requested token count exceeds the model's maximum context length of {context} tokens: {prompt} + {max_new_tokens}."
        raise Refused({"message": message})


def answer_body(
    request: GenerateRequest, ids: list[int], finish: dict[str, Any], seconds: float, fault: Fault | None = None
) -> dict[str, Any]:
    """The body of a finished request. `fault` changes it as its kind says."""
    meta: dict[str, Any] = {
        "id": request.rid,
        "finish_reason": finish,
        "prompt_tokens": len(request.input_ids),
        "completion_tokens": len(ids),
        "cached_tokens": 0,
        "weight_version": "default",
        "e2e_latency": seconds,
    }
    body: dict[str, Any] = {"text": f"<{len(ids)} simulated tokens>", "output_ids": ids, "meta_info": meta}
    return _BODY_FAULTS[fault.kind](body, request, fault) if fault and fault.kind in _BODY_FAULTS else body


def finish_reason(kind: str, ids: list[int]) -> dict[str, Any]:
    """`finish_reason` as SGLang words it, for `stop` and `length`."""
    return {"type": "length", "length": len(ids)} if kind == "length" else {"type": "stop", "matched": ids[-1]}


def abort_reason(message: str) -> dict[str, Any]:
    """`finish_reason` of an aborted request."""
    return {"type": "abort", "message": message}


def _prompt_tail(body: dict[str, Any], request: GenerateRequest, fault: Fault) -> dict[str, Any]:
    return body | {"output_ids": request.input_ids[-int(fault.number) :] + body["output_ids"]}


def _wrong_count(body: dict[str, Any], _request: GenerateRequest, fault: Fault) -> dict[str, Any]:
    meta = body["meta_info"]
    return body | {"meta_info": meta | {"completion_tokens": meta["completion_tokens"] + int(fault.number)}}


def _null_finish(body: dict[str, Any], _request: GenerateRequest, _fault: Fault) -> dict[str, Any]:
    return body | {"meta_info": body["meta_info"] | {"finish_reason": None}}


def _plain_finish(body: dict[str, Any], _request: GenerateRequest, _fault: Fault) -> dict[str, Any]:
    return body | {"meta_info": body["meta_info"] | {"finish_reason": body["meta_info"]["finish_reason"]["type"]}}


def _old_layout(body: dict[str, Any], _request: GenerateRequest, _fault: Fault) -> dict[str, Any]:
    return {"text": body["text"], "meta_info": body["meta_info"] | {"output_ids": body["output_ids"]}}


def _foreign_id(body: dict[str, Any], _request: GenerateRequest, _fault: Fault) -> dict[str, Any]:
    return body | {"output_ids": [2**31 - 1, *body["output_ids"][1:]]}


def _abort(body: dict[str, Any], _request: GenerateRequest, _fault: Fault) -> dict[str, Any]:
    return body | {"meta_info": body["meta_info"] | {"finish_reason": abort_reason("Aborted")}}


def _out_of_memory(body: dict[str, Any], _request: GenerateRequest, _fault: Fault) -> dict[str, Any]:
    return body | {"meta_info": body["meta_info"] | {"finish_reason": abort_reason(OUT_OF_MEMORY)}}


OUT_OF_MEMORY = "Out of memory even after retracting all other requests in the decode batch. Aborting the last request."

_BODY_FAULTS = {
    "prompt_tail": _prompt_tail,
    "wrong_count": _wrong_count,
    "null_finish": _null_finish,
    "plain_finish": _plain_finish,
    "old_layout": _old_layout,
    "foreign_id": _foreign_id,
    "abort": _abort,
    "out_of_memory": _out_of_memory,
}
