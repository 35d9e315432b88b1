"""What a check found, as data and as a note a colleague would write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

Verdict: TypeAlias = Literal[
    "pass", "wrong", "kink", "precision-limited", "non-finite", "nondeterministic", "aliased-input"
]
Kind: TypeAlias = Literal[
    "sign",
    "constant-factor",
    "missing-broadcast-sum",
    "transposed",
    "swapped-inputs",
    "overwritten-duplicates",
    "missing-term",
    "stale-saved-value",
    "mutated-cotangent",
    "stride-assumption",
    "dtype",
    "detached",
    "conjugated",
    "shape",
    "edge-value",
]

# When several things are found, the first of these is the verdict.
GRAVITY: tuple[Verdict, ...] = (
    "wrong",
    "aliased-input",
    "nondeterministic",
    "non-finite",
    "kink",
    "precision-limited",
    "pass",
)
SHOWN = 2  # findings printed in full
COVERED = 4  # inputs whose coverage is printed
LENGTH = 25  # lines; what is found comes first, then what was compared, then notes as far as there is room
WIDTH = 116


@dataclass(frozen=True)
class Where:
    """One entry of one gradient: what was claimed, what was measured, and how well."""

    input: str
    index: int
    shape: tuple[int, ...]
    element: str
    analytic: float | None = None
    numeric: float | None = None
    bar: float | None = None
    error: float | None = None  # relative
    cotangent: str = ""

    def lines(self) -> list[str]:
        """The entry as one or two lines of text."""
        head = f"input {self.index} ({self.input}), shape {self.shape}"
        head += f", {self.element}" if self.element else ""
        if self.analytic is None and self.numeric is None:
            return [head]
        analytic = "none" if self.analytic is None else f"{self.analytic + 0.0:.10g}"  # + 0.0: no minus zero
        numeric = "none" if self.numeric is None else f"{self.numeric + 0.0:.10g}"
        bar = f" +- {self.bar:.1e}" if self.bar is not None else ""
        tail = f" (relative error {self.error:.2g})" if self.error is not None else ""
        of = f", cotangent: {self.cotangent}" if self.cotangent else ""
        return [head + of, f"  analytic {analytic}, numeric {numeric}{bar}{tail}"]


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be."""

    verdict: Verdict
    why: str
    kind: Kind | None = None
    advice: str = ""
    where: Where | None = None
    order: int = 1
    sample: str = ""

    @property
    def title(self) -> str:
        """Verdict, kind, and which order and sample it was found at."""
        name = self.verdict + (f", {self.kind}" if self.kind else "")
        of = [f"order {self.order}"] if self.order > 1 else []
        of += [f"sample: {self.sample}"] if self.sample else []
        return name + (f" ({'; '.join(of)})" if of else "")

    def lines(self) -> list[str]:
        """The rest of the finding as a few lines of text."""
        text = self.where.lines() if self.where else []
        text.append(f"{'suspected' if self.kind else 'because'}: {self.why}")
        return text + ([f"try: {self.advice}"] if self.advice else [])


@dataclass(frozen=True)
class Blind:
    """An input whose shape could not show a missing transpose."""

    input: str
    shape: tuple[int, ...]


@dataclass
class Report:
    """The result of a check.  ``print(report)`` reads it out, ``report.raise_if_failed()`` enforces it.

    checks: how many numbers were compared.  worst: the worst relative error among those that are compared at full
    precision, |analytic - numeric| / max(|analytic|, |numeric|, scale of the Jacobian).
    """

    name: str
    findings: tuple[Finding, ...] = ()
    by_order: dict[int, int] = field(default_factory=dict)
    worst: float = 0.0
    coverage: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    blind: tuple[Blind, ...] = ()
    sighted: frozenset[str] = frozenset()
    samples: int = 1
    seed: int = 0

    @property
    def verdict(self) -> Verdict:
        """The gravest of the findings' verdicts, or ``pass``."""
        return min((f.verdict for f in self.findings), key=GRAVITY.index, default="pass")

    @property
    def passed(self) -> bool:
        """True if nothing was found."""
        return not self.findings

    @property
    def kind(self) -> Kind | None:
        """The suspected mistake behind the verdict, if any: what most findings say, as samples may differ."""
        kinds = Counter(f.kind for f in self.findings if f.verdict == self.verdict and f.kind)
        return kinds.most_common(1)[0][0] if kinds else None

    @property
    def checks(self) -> int:
        """How many scalar comparisons were made, at all orders."""
        return sum(self.by_order.values())

    def raise_if_failed(self) -> None:
        """Raise AssertionError with the whole note unless the check passed."""
        if not self.passed:
            raise AssertionError(f"\n{self}")

    def all_notes(self) -> list[str]:
        """The notes, with a warning for every input that no sample showed in a telling shape."""
        blind = {b.input: b.shape for b in self.blind if b.input not in self.sighted}
        warned = [
            f"input {name} has shape {shape}: axes of equal size or of size 1 can't show a missing transpose; "
            "try sizes that all differ and exceed 1"
            for name, shape in blind.items()
        ]
        return [*dict.fromkeys(self.notes), *warned]

    def __str__(self) -> str:
        lines = _wrapped(self._lines())
        coverage = [f"  {line}" for line in dict.fromkeys(self.coverage)][:COVERED]
        for extra in [*coverage, *(f"  note: {note}" for note in self.all_notes())]:
            more = _wrapped([extra])
            lines += more if len(lines) + len(more) <= LENGTH else []
        return "\n".join(lines)

    def _lines(self) -> list[str]:
        kind = self.kind
        ranked = sorted(self.findings, key=lambda f: (GRAVITY.index(f.verdict), f.kind != kind))
        lines = [f"gradcheck {self.name}: {ranked[0].title if ranked else self.verdict}"]
        told = list({(f.verdict, f.kind, f.where and f.where.index): f for f in reversed(ranked)}.values())[::-1]
        for i, finding in enumerate(told[:SHOWN]):
            lines += [f"  {finding.title}"] if i else []
            lines += [f"  {'  ' if i else ''}{line}" for line in finding.lines()]
        if len(ranked) > min(len(told), SHOWN):
            lines.append(f"  and {len(ranked) - min(len(told), SHOWN)} more findings like these")
        orders = ", ".join(f"{n} at order {order}" for order, n in sorted(self.by_order.items()))
        several = f" over {self.samples} samples" if self.samples > 1 else ""
        lines.append(
            f"  compared: {self.checks} numbers{several} ({orders or 'none'}); "
            f"worst relative error {self.worst:.1e}; seed {self.seed}"
        )
        return lines

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, for JSON."""
        return {
            "name": self.name,
            "verdict": self.verdict,
            "kind": self.kind,
            "passed": self.passed,
            "samples": self.samples,
            "checks": self.checks,
            "checks_by_order": {str(k): v for k, v in sorted(self.by_order.items())},
            "worst_relative_error": self.worst,
            "seed": self.seed,
            "findings": [asdict(f) for f in self.findings],
            "coverage": list(dict.fromkeys(self.coverage)),
            "notes": self.all_notes(),
        }


def merged(name: str, reports: Iterable[Report], *, seed: int = 0, notes: tuple[str, ...] = ()) -> Report:
    """One report over several: of all samples, or of several orders."""
    total = Report(name, samples=0, seed=seed, notes=notes)
    for report in reports:
        total.findings += report.findings
        total.coverage += report.coverage
        total.notes += report.notes
        total.blind += report.blind
        total.sighted |= report.sighted
        total.samples += report.samples
        total.worst = max(total.worst, report.worst)
        for order, count in report.by_order.items():
            total.by_order[order] = total.by_order.get(order, 0) + count
    return total


def _wrapped(lines: list[str]) -> list[str]:
    """Long lines broken at spaces, continued two columns further in."""
    out: list[str] = []
    for line in lines:
        indent = len(line) - len(line.lstrip())
        while len(line) > WIDTH:
            cut = line.rfind(" ", indent + 20, WIDTH)
            if cut < 0:
                break
            out.append(line[:cut])
            line = " " * (indent + 2) + line[cut + 1 :]
        out.append(line)
    return out
