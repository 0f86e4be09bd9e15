"""Asking a server about itself over HTTP: which model, which capacity, does it really generate, do tokens move.

Endpoints carry an old and a new name, because hosts run builds of different ages. Nothing here follows a proxy: the server is local.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import Any

import requests

_CONNECT_S = 5
_ASK_S = 10

_MOVING_METRICS = re.compile(
    r"^sglang[:_](?:generation_tokens_total|realtime_tokens_total|prompt_tokens_total|prefill_effective_tokens_total)\S*(?:\{[^}]*\})?\s+(\S+)",
    re.MULTILINE,
)
_MOVING_LOADS = ("num_used_tokens", "num_tokens", "num_total_tokens", "decode_moments", "total_prefill_uncached_tokens")


class ProbeError(Exception):
    """The server answered a probe wrongly or not at all; the text says how."""


@dataclass(frozen=True)
class Facts:
    """What a server says about itself. Sizes in tokens; None where this build does not say."""

    model_path: str
    served_model_name: str
    version: str
    kv_capacity_tokens: int | None
    context_length: int | None
    max_req_input_len: int | None


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def kv_capacity(info: dict[str, Any]) -> int | None:
    """KV cache capacity in /server_info, under its newer and its older names. With data parallelism: of the smallest replica."""
    direct = _number(info.get("max_total_num_tokens"))
    if direct:
        return direct
    found = []
    states = info.get("internal_states")
    for state in states if isinstance(states, list) else []:
        if isinstance(state, dict):
            usage = state.get("memory_usage")
            places = (state.get("max_total_num_tokens"), usage.get("token_capacity") if isinstance(usage, dict) else None)
            found += [number for number in map(_number, places) if number]
    return min(found) if found else None


class Probe:
    """One server under its address."""

    def __init__(self, base_url: str, api_key: str | None) -> None:
        self._base = base_url
        self._session = requests.Session()
        self._session.trust_env = False
        if api_key:
            self._session.headers["Authorization"] = f"Bearer {api_key}"

    def close(self) -> None:
        """Let go of the connections."""
        self._session.close()

    def _get(self, path: str) -> requests.Response | None:
        try:
            return self._session.get(self._base + path, timeout=(_CONNECT_S, _ASK_S))
        except requests.RequestException:
            return None

    def _get_json(self, *paths: str) -> Any:
        """The JSON under the first of `paths` that this build has; None where it has none of them."""
        for path in paths:
            answer = self._get(path)
            if answer is not None and answer.ok:
                with contextlib.suppress(requests.JSONDecodeError):
                    return answer.json()
        return None

    def healthy(self) -> bool:
        """Whether /health says yes, or this build has no such endpoint."""
        answer = self._get("/health")
        return answer is not None and (answer.ok or answer.status_code == requests.codes.not_found)

    def facts(self) -> Facts | None:
        """Model, version and capacity; None where the server does not say which model it serves."""
        model = self._get_json("/model_info", "/get_model_info")
        if not isinstance(model, dict) or not isinstance(model.get("model_path"), str):
            return None
        answer = self._get_json("/server_info", "/get_server_info")
        info = answer if isinstance(answer, dict) else {}
        return Facts(
            model_path=model["model_path"],
            served_model_name=str(model.get("served_model_name") or info.get("served_model_name") or model["model_path"]),
            version=str(info.get("version") or "unknown"),
            kv_capacity_tokens=kv_capacity(info),
            context_length=_number(info.get("context_length")),
            max_req_input_len=_number(info.get("max_req_input_len")),
        )

    def generate_one(self, timeout_s: float) -> list[int]:
        """One real token from one real id, without the tokenizer. ProbeError where none comes."""
        body = {"input_ids": [1], "sampling_params": {"max_new_tokens": 1, "temperature": 0.0}}
        try:
            answer = self._session.post(f"{self._base}/generate", json=body, timeout=(_CONNECT_S, timeout_s))
        except requests.Timeout:
            raise ProbeError(f"no token within {timeout_s:.0f} s") from None
        except requests.RequestException as error:
            raise ProbeError(f"the connection broke ({type(error).__name__})") from None
        if not answer.ok:
            raise ProbeError(f"HTTP {answer.status_code}: {answer.text[:200]}")
        try:
            value = answer.json()
        except requests.JSONDecodeError:
            raise ProbeError("the answer is not JSON") from None
        meta = value.get("meta_info") if isinstance(value, dict) else None
        if not isinstance(meta, dict):
            raise ProbeError(f"the answer holds no meta_info: {answer.text[:200]}")
        # Older builds put the ids into meta_info.
        ids = value.get("output_ids") or meta.get("output_ids")
        if not ids:
            raise ProbeError(f"the answer holds no token: {answer.text[:200]}")
        return list(ids)

    def counters(self) -> tuple[Any, ...]:
        """Numbers that change while tokens are computed, from whatever this build offers; empty where it offers none."""
        found: list[Any] = []
        answer = self._get_json("/v1/loads", "/get_load")
        loads = answer.get("loads") if isinstance(answer, dict) else answer
        for load in loads if isinstance(loads, list) else []:
            found += [repr(load.get(name)) for name in _MOVING_LOADS if isinstance(load, dict)]
        metrics = self._get("/metrics")
        if metrics is not None and metrics.ok:
            found += _MOVING_METRICS.findall(metrics.text)
        return tuple(found)
