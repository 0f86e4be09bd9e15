"""Where the generation jobs of one server tell each other what they expect to hold of its KV cache.

The server's own numbers say what its cache holds now. They do not say what is to come: two jobs that look at the same free room would
both fill it. So each job keeps its forecast in a small file here, and admits only what fits beside those of the others. Nobody waits
for anybody: a job that says nothing for STALE_S seconds is taken to be gone.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from pydantic import TypeAdapter

from draftmill.generation.forecast import Forecast

STALE_S = 10.0
"""Jobs publish at every look at the server, so several times in this."""

_FORM = TypeAdapter(Forecast)


class Board:
    """The forecasts of one server's jobs, as one of them sees them. `name` is that job's own, unique among them."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._path = folder / f"{name}.json"
        self._partial = folder / f".{name}.tmp"

    def publish(self, forecast: Forecast) -> None:
        """Say what this job expects. A full disk is no reason to stop: the others then see an old forecast, and soon none."""
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._partial.write_bytes(_FORM.dump_json(forecast))
            self._partial.replace(self._path)

    def withdraw(self) -> None:
        """Say that this job has nothing out any more."""
        for path in (self._partial, self._path):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    def others(self, now: float) -> list[Forecast]:
        """What the other jobs said in the last STALE_S seconds. A time in the future is of before the machine was started."""
        known = [_read(path) for path in sorted(self._folder.glob("*.json")) if path.name != self._path.name]
        return [forecast for forecast in known if forecast is not None and -1.0 <= now - forecast.at <= STALE_S]


def _read(path: Path) -> Forecast | None:
    """None where it is gone, or was not written by this version of the code."""
    try:
        forecast = _FORM.validate_json(path.read_bytes())
    except (OSError, ValueError):
        return None
    return forecast if forecast.ahead and len(forecast.ahead) == len(forecast.use) == len(forecast.variance) else None
