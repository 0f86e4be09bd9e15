"""Server profile -> the command that starts SGLang, checked against what the build understands before anything is started."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import orjson
import yaml

from draftmill.errors import PermanentError
from draftmill.files import atomic_writer
from draftmill.serving.build import Build, Flag
from draftmill.spec.server import FIELD_OF_FLAG, Scalar, ServerProfile, flag_name

Value = Scalar | list[Scalar]

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_NOT_IN_FINGERPRINT = ("port", "host", "api-key")


@dataclass(frozen=True)
class Command:
    """What to run. `settings` went into the configuration file, or are in `argv` where the build reads none."""

    argv: list[str]
    api_key: str | None
    settings: dict[str, Value]


def wanted_flags(profile: ServerProfile, model: str, tokenizer: str | None, port: int) -> dict[str, Value]:
    """SGLang's flags for the profile, without the API key. A value of False means that the switch is not to be set."""
    flags: dict[str, Value] = {
        "model-path": model,
        "tp-size": profile.tensor_parallel,
        "mem-fraction-static": profile.memory_fraction,
        "host": profile.host,
        "port": port,
    }
    optional: dict[str, Value | None] = {
        "tokenizer-path": tokenizer,
        "trust-remote-code": profile.trust_remote_code or None,
        "kv-cache-dtype": profile.kv_cache_dtype if profile.kv_cache_dtype != "auto" else None,
        "enable-hierarchical-cache": profile.hierarchical_cache or None,
        "hicache-ratio": profile.hicache_ratio,
        "context-length": profile.context_length,
        "device": profile.device if profile.device != "cuda" else None,
    }
    flags.update({name: value for name, value in optional.items() if value is not None})
    flags.update({flag_name(key): value for key, value in profile.extra_args.items()})
    return flags


def _nearest(word: str, known: list[str]) -> str:
    near = get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""


def _value_fault(flag: Flag, value: Value) -> str | None:
    """What is wrong with giving `value` to `flag`, or None."""
    if not flag.takes_value:
        return None if isinstance(value, bool) else f"is a switch, give true or false (found {value!r})"
    if flag.choices:
        for item in value if isinstance(value, list) else [value]:
            if str(item) not in flag.choices:
                near = _nearest(str(item), list(flag.choices)) or f"; it knows {', '.join(flag.choices)}"
                return f"this build does not know {item!r}{near}"
    return None


def check_flags(flags: dict[str, Value], build: Build) -> list[str]:
    """Every flag or value that the build would refuse, one sentence each; empty where all is well."""
    faults = []
    for name, value in flags.items():
        flag = build.flags.get(name)
        fault = f"is no flag of this build{_nearest(name, list(build.flags))}" if flag is None else _value_fault(flag, value)
        if fault:
            label = FIELD_OF_FLAG.get(name)
            faults.append(f"{f'{label} (--{name})' if label else name}: {fault} (SGLang {build.version})")
    return faults


def _words(flag: Flag, value: Value) -> list[str]:
    """The flag as command-line words; empty for a switch that stays unset."""
    if flag.takes_value:
        items = [str(item).lower() if isinstance(item, bool) else str(item) for item in (value if isinstance(value, list) else [value])]
        # One word, so that a value may begin with a dash.
        return [f"--{flag.name}={items[0]}"] if len(items) == 1 else [f"--{flag.name}", *items]
    if value:
        return [f"--{flag.name}"]
    return [f"--{flag.negation}"] if flag.negation else []


def _draw_key(profile: ServerProfile, build: Build) -> str | None:
    """A new API key; None where this build could only take it on its command line, which every user of the host can read."""
    if build.reads_config:
        return secrets.token_hex(32)  # SGLang makes words of the file, and a key that began with a dash would be taken for a flag
    if profile.host in _LOOPBACK:
        return None
    raise PermanentError(
        f"host: SGLang {build.version} reads no configuration file, so a key for {profile.host} would be in the process list;"
        " use 127.0.0.1 or a newer build"
    )


def write_command(profile: ServerProfile, build: Build, flags: dict[str, Value], config: Path) -> Command:
    """Write `config` (mode 0600, YAML) and give the command that reads it.

    Raises PermanentError with every unknown flag or value and the nearest known name.
    """
    faults = check_flags(flags, build)
    if faults:
        raise PermanentError("server profile: " + "; ".join(faults))
    key = _draw_key(profile, build)
    argv = [build.python, "-m", "sglang.launch_server"]
    if not build.reads_config:
        return Command(argv + [word for name, value in flags.items() for word in _words(build.flags[name], value)], key, flags)
    settings: dict[str, Any] = {"api-key": key}
    extra = []
    for name, value in flags.items():
        flag = build.flags[name]
        # SGLang's reader refuses switches that have a --no- twin, so these stay words of the command.
        if flag.negation:
            extra += _words(flag, value)
        elif value is not False or flag.takes_value:
            settings[name] = value
    with atomic_writer(config, 0o600) as stream:
        stream.write(yaml.safe_dump(settings, sort_keys=False).encode())
    return Command([*argv, "--config", str(config), *extra], key, flags)


def fingerprint(version: str, flags: dict[str, Value], model_digest: str | None) -> str:
    """16 hex characters for what decides answers: version, model and arguments; address and key are left out."""
    deciding = {name: value for name, value in flags.items() if name not in _NOT_IN_FINGERPRINT}
    text = orjson.dumps([version, deciding, model_digest], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(text).hexdigest()[:16]
