"""A server profile: how SGLang is started on the host, and for how long it may do nothing."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from draftmill.spec.base import Name, SafePath, Strict

Scalar = str | int | float | bool

FIELD_OF_FLAG = {
    "model-path": "model_path",
    "model": "model_path",
    "tokenizer-path": "tokenizer_path",
    "trust-remote-code": "trust_remote_code",
    "tp-size": "tensor_parallel",
    "tensor-parallel-size": "tensor_parallel",
    "tp": "tensor_parallel",
    "kv-cache-dtype": "kv_cache_dtype",
    "mem-fraction-static": "memory_fraction",
    "enable-hierarchical-cache": "hierarchical_cache",
    "hicache-ratio": "hicache_ratio",
    "context-length": "context_length",
    "device": "device",
    "host": "host",
    "port": "port",
}
"""SGLang's flags that a profile gives through a field of its own."""

_REFUSED = {
    "allow-auto-truncate": "it cuts long prompts silently, and training ids would be wrong",
    "api-key": "a new key is drawn at each launch",
    "admin-api-key": "a secret has no place in a profile",
    "config": "the file is written from this profile",
    "help": "it would start no server",
}


def flag_name(key: str) -> str:
    """A key of `extra_args` under SGLang's spelling: no dashes in front, dashes inside."""
    return key.strip().lstrip("-").replace("_", "-")


class ServerProfile(Strict):
    """An entry of servers.yaml. Sizes are in tokens, times in seconds. What has no field of its own goes into `extra_args`."""

    description: str = ""
    device: Literal["cuda", "cpu"] = "cuda"
    python: SafePath | None = Field(None, description="The interpreter that has SGLang; None is the one that runs draftmill on the host.")
    model_path: SafePath = Field(description="A path (absolute, ~ or below the workspace), or a hub id where no such path exists.")
    tokenizer_path: SafePath | None = None
    trust_remote_code: bool = False
    tokenizer_class: str | None = Field(None, description="The tokenizer class that must come out of loading; None accepts any.")
    round_trip: tuple[str, ...] = Field((), description="Special tokens that must encode to one id each and decode back.")
    chat_template_kwargs: dict[str, Scalar] = Field(default_factory=dict)
    tensor_parallel: int = Field(1, gt=0)
    kv_cache_dtype: str = "auto"
    memory_fraction: float = Field(0.88, gt=0, lt=1)
    hierarchical_cache: bool = False
    hicache_ratio: float | None = Field(None, gt=0)
    context_length: int | None = Field(None, gt=0)
    host: str = "127.0.0.1"
    port: int = Field(30000, ge=0, le=65535, description="0 chooses a free port at each launch.")
    extra_args: dict[str, Scalar | list[Scalar]] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict)
    min_kv_tokens: int | None = Field(None, gt=0, description="Refuse a server with less KV capacity than this.")
    idle_stop_s: float = Field(900, gt=0)
    load_stall_s: float = Field(900, gt=0, description="Loading without any sign of progress for this long is a failure.")
    silent_s: float = Field(180, gt=0, description="Generating without any new token for this long is a wedged server.")
    drain_s: float = Field(120, ge=0)
    max_restarts: int = Field(3, ge=0, description="Restarts within restart_window_s before giving up.")
    restart_window_s: float = Field(3600, gt=0)
    restart_backoff_s: float = Field(5, ge=0, description="Wait before the first restart; doubles with each further one, to two minutes.")

    @field_validator("extra_args")
    @classmethod
    def _no_second_way(cls, value: dict[str, object]) -> dict[str, object]:
        names = [flag_name(key) for key in value]
        for name in names:
            if name in _REFUSED:
                raise ValueError(f"{name!r} is refused: {_REFUSED[name]}")
            if name in FIELD_OF_FLAG:
                raise ValueError(f"{name!r} has a field of its own; use '{FIELD_OF_FLAG[name]}'")
            if names.count(name) > 1:
                raise ValueError(f"{name!r} is given twice, spelled differently")
        return value

    @field_validator("env")
    @classmethod
    def _env_names(cls, value: dict[str, str]) -> dict[str, str]:
        for key, text in value.items():
            if not key or "=" in key or "\x00" in key + text:
                raise ValueError(f"{key!r} cannot be the name of an environment variable")
            if key.startswith("DRAFTMILL_"):
                raise ValueError(f"{key!r}: names that begin with DRAFTMILL_ are draftmill's own")
        return value


class NamedServer(Strict):
    """A profile together with the name it has in servers.yaml."""

    name: Name
    profile: ServerProfile
