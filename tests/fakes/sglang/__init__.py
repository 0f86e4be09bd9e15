"""A stand-in for SGLang that misbehaves on purpose; see tests/fakes/README.md."""

__version__ = "0.0.1+fake"
