"""What a check of a corpus found."""

from __future__ import annotations

from dataclasses import dataclass, field

MOST_FAULTS = 20


@dataclass
class Report:
    """No faults means: the corpus is what its manifest says. `notes` are worth knowing and no faults."""

    manifest_sha256: str = ""
    rows: int = 0
    held_out_rows: int = 0
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left_out: int = 0

    def fault(self, text: str) -> None:
        """Note a fault; beyond MOST_FAULTS they are only counted."""
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(text)
        else:
            self.left_out += 1
