"""What requests will hold of the KV cache, now and later, and how many more fit beside them.

"Later" is counted in tokens, not in seconds: every running request gets one token a decode step, so the requests of all jobs on a
server are so many tokens further at the same moment, however fast it decodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from draftmill.generation.lengths import LengthLaw

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

HORIZONS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0, 1.3, 1.7, 2.2, 3.0, 4.5, 8.0)
"""When the use is predicted for: in mean answer lengths from now."""


@dataclass(frozen=True)
class Forecast:
    """The predicted KV use of one job if it admits nothing more.

    at: seconds of the machine's monotonic clock. rate: tokens a second of one request. wants: whether the job would send more if there
    were room. ahead: tokens from `at` on, ascending from 0; use, variance: KV tokens then; all of one length.
    """

    at: float
    rate: float
    wants: bool
    ahead: list[float]
    use: list[float]
    variance: list[float]

    @property
    def peak(self) -> float:
        """The largest use, in KV tokens."""
        return max(self.use)

    def held(self, now: float) -> float:
        """KV tokens in use at `now`."""
        import numpy as np

        return float(self.seen(now, np.zeros(1))[0][0])

    def seen(self, now: float, ahead: Floats) -> tuple[Floats, Floats]:
        """Use and variance `ahead` tokens from `now` on; what lies beyond the forecast is taken to be as at its end."""
        import numpy as np

        later = ahead + max(0.0, now - self.at) * self.rate
        return np.interp(later, self.ahead, self.use), np.interp(later, self.ahead, self.variance)


def use(law: LengthLaw, ages: Floats, prompts: Floats, ahead: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of the KV use of these requests, `ahead` tokens from now, if no other is admitted. Shape [len(ahead)].

    A request of age a is still running s tokens later with probability P = S(a + s) / S(a), and holds p + a + s tokens then.
    """
    import numpy as np

    later = ages[None, :] + ahead[:, None]
    alive = law.alive(later) / np.maximum(law.alive(ages), 1e-9)[None, :]
    held = later + prompts[None, :]
    return (alive * held).sum(axis=1), (alive * (1 - alive) * held * held).sum(axis=1)


def fitting(fresh: Floats, spread: Floats, variance: Floats, room: Floats, caution: float) -> float:
    """How many fresh requests fit: the largest k >= 0 with k fresh + caution sqrt(variance + k spread) <= room at every horizon.

    With u = sqrt(variance + k spread): (fresh / spread) (u^2 - variance) + caution u - room = 0, a quadratic equation in u.
    """
    import numpy as np

    relevant = fresh > 1e-6 * fresh.max()
    room, variance, fresh, spread = room[relevant], variance[relevant], fresh[relevant], np.maximum(spread[relevant], 1e-6)
    slope = fresh / spread
    inside = caution * caution + 4 * slope * (room + slope * variance)
    root = (-caution + np.sqrt(np.maximum(inside, 0.0))) / (2 * slope)
    return float(np.where(inside > 0, np.maximum((root * root - variance) / spread, 0.0), 0.0).min())
