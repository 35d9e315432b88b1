"""What a comparison found, as a line, as JSON and as a row of a Markdown table."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from .timing import Times

DISTURBED = 0.15
WORKS = {"gemm": "GFLOP/s", "copy": "GB/s"}


@dataclasses.dataclass(frozen=True)
class Row:
    """One case with one peer.

    state: "valid", "invalid" (the results differ), "failed" (an error) or "skipped".  deviation: as in ``case``.
    work: ("gemm", FLOP) or ("copy", bytes) per item, machine: the machine's rate of it.  memory: peaks in bytes, ours
    first.  others: cores that other processes kept busy meanwhile: beyond ``DISTURBED`` times mean little, the less
    the more threads wait for each other.  A target is an upper bound of a ratio, ``share_target`` a lower bound of the
    share of the machine's rate.
    """

    name: str
    peer: str
    state: str
    note: str = ""
    deviation: float | None = None
    tolerance: float | None = None
    times: Times | None = None
    others: float | None = None
    target: float | None = None
    work: tuple[str, float] | None = None
    machine: float = math.nan
    share_target: float | None = None
    memory: tuple[int, int] | None = None
    memory_target: float | None = None

    @property
    def failed(self) -> bool:
        """Whether something is wrong, beyond a peer that isn't there."""
        return self.state in ("invalid", "failed")

    @property
    def rate(self) -> float | None:
        """Entrenar's FLOP/s or bytes/s; None if the case states neither."""
        return self.work[1] / self.times.ours if self.work and self.work[1] and self.times else None

    @property
    def share(self) -> float | None:
        """That rate as a part of the machine's."""
        return None if self.rate is None or math.isnan(self.machine) else self.rate / self.machine

    @property
    def memory_ratio(self) -> float | None:
        """Entrenar's peak memory over the peer's."""
        return self.memory[0] / self.memory[1] if self.memory else None

    @property
    def disturbed(self) -> bool:
        """Whether other processes took too much of the machine."""
        return self.others is not None and self.others > DISTURBED

    def targets(self) -> dict[str, dict[str, Any]]:
        """Each target by what it bounds: {"target", "found", "met"}."""
        bounds = {
            "time": (self.target, self.times.ratio if self.times else None, 1),
            "share": (self.share_target, self.share, -1),
            "memory": (self.memory_target, self.memory_ratio, 1),
        }
        return {
            what: {"target": target, "found": found, "met": found * sign <= target * sign}
            for what, (target, found, sign) in bounds.items()
            if target is not None and found is not None
        }

    def __str__(self) -> str:
        head = f"{self.name:<30} {self.peer:<14}"
        if not self.times:
            agreed = f"results agree to {self.deviation:.1e}" if self.state == "valid" else self.note
            return f"{head} {self.state}: {agreed}"
        t = self.times
        parts = [
            f"ours {duration(t.ours)}  theirs {duration(t.theirs)}  ratio {t.ratio:.3f} ({t.low:.3f}-{t.high:.3f})"
        ]
        if self.rate is not None and self.work:
            parts.append(f"{self.rate / 1e9:.4g} {WORKS[self.work[0]]}{percent(self.share)}")
        if self.memory:
            parts.append(f"peak {size(self.memory[0])} / {size(self.memory[1])} = {self.memory_ratio:.2f}")
        return "  ".join([head, *parts, *verdicts(self)])


def verdicts(row: Row) -> list[str]:
    """Each target with the word for it, and whether the machine was shared."""
    sign = {"time": "<=", "share": ">=", "memory": "<="}
    told = [
        f"{what} {sign[what]} {found['target']:.2f} {'met' if found['met'] else 'MISSED'}"
        for what, found in row.targets().items()
    ]
    return [*told, f"DISTURBED: others used {row.others:.1f} cores"] if row.disturbed else told


def duration(seconds: float) -> str:
    """Seconds in the unit that suits them, ten characters wide."""
    unit, length = next((u for u in (("s", 1.0), ("ms", 1e-3)) if seconds >= u[1]), ("us", 1e-6))
    return f"{seconds / length:7.3f} {unit:<2}"


def size(count: float) -> str:
    """Bytes in mebibytes."""
    return f"{count / 2**20:.0f} MiB"


def percent(share: float | None) -> str:
    """A share of the machine's rate, in brackets."""
    return "" if share is None else f" ({100 * share:.0f} %)"


def report(rows: Sequence[Row], about: Mapping[str, Any]) -> dict[str, Any]:
    """Everything, for programs: what was found and what it depends on.  Infinite numbers are None: JSON has none."""
    results = [
        dataclasses.asdict(row)
        | {
            "disturbed": row.disturbed,
            "rate": row.rate,
            "share": row.share,
            "memory_ratio": row.memory_ratio,
            "targets": row.targets(),
        }
        for row in rows
    ]
    return {"machine": dict(about), "results": [{k: _finite(v) for k, v in result.items()} for result in results]}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def markdown(rows: Sequence[Row], about: Mapping[str, Any]) -> str:
    """The table for readers, under a line on the machine and above one for every row that has no times."""
    versions = ", ".join(f"{name} {version or '(not installed)'}" for name, version in about["versions"].items())
    lines = [
        f"{about['processor']}, {about['cores']} cores, {about['threads']} threads a side, {about['system']}.",
        f"Python {about['python']}, {versions}.",
    ]
    if about.get("rates"):
        peak, copied = about["rates"]["gemm"] / 1e9, about["rates"]["copy"] / 1e9
        lines.append(f"In the same run: float32 GEMM through NumPy {peak:.0f} GFLOP/s, copy {copied:.1f} GB/s.")
    if about.get("against"):
        lines.append(f"The peer is the entrenar in {about['against']}.")
    head = (
        "case",
        "peer",
        "entrenar",
        "peer's",
        "ratio (quartiles)",
        "rate (of the machine's)",
        "peak memory",
        "targets",
    )
    lines += ["", f"| {' | '.join(head)} |", f"|{'---|' * 2}{'---:|' * 5}---|"]
    lines += [f"| {' | '.join(_cells(row))} |" for row in rows]
    return "\n".join(lines) + "\n"


def _cells(row: Row) -> list[str]:
    if not row.times:
        agreed = f"results agree to {row.deviation:.1e}" if row.state == "valid" else row.note
        told = f"{row.state}: {agreed}".replace("|", "\\|").replace("\n", " ")
        return [row.name, row.peer, "", "", "", "", "", told]
    t = row.times
    rate = f"{row.rate / 1e9:.3g} {WORKS[row.work[0]]}{percent(row.share)}" if row.rate and row.work else ""
    memory = f"{size(row.memory[0])} / {size(row.memory[1])} = {row.memory_ratio:.2f}" if row.memory else ""
    ratio = f"{t.ratio:.2f} ({t.low:.2f}-{t.high:.2f})"
    return [
        row.name,
        row.peer,
        duration(t.ours).strip(),
        duration(t.theirs).strip(),
        ratio,
        rate,
        memory,
        ", ".join(verdicts(row)),
    ]
