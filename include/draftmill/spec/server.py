"""A server profile: how SGLang is started on the host, and for how long it may do nothing."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from draftmill.spec.base import Name, SafePath, Strict

Scalar = str | int | float | bool


class ServerProfile(Strict):
    """An entry of servers.yaml. Sizes are in tokens, times in seconds. What has no field of its own goes into `extra_args`."""

    description: str = ""
    device: Literal["cuda", "cpu"] = "cuda"
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
    max_restarts: int = Field(3, ge=0)

    @field_validator("extra_args")
    @classmethod
    def _no_truncation(cls, value: dict[str, object]) -> dict[str, object]:
        for key in value:
            if key.strip("-").replace("_", "-") == "allow-auto-truncate":
                raise ValueError("'allow-auto-truncate' is refused: it cuts long prompts silently, and training ids would be wrong")
        return value


class NamedServer(Strict):
    """A profile together with the name it has in servers.yaml."""

    name: Name
    profile: ServerProfile
