"""``entrenar verify``: a run is replayed and compared."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import typer

from ..config import load_config
from ..train import Callback, Verification, verify_run
from .tell import note, result, say
from .train import progress


def run_verification(path: Path, start: int) -> None:
    """The whole command.  Raises DataError for what is no run, typer.Exit with 1 or 3 as ``Verification`` says."""

    def watchers(end: int) -> Iterable[Callback]:
        note(f"replaying {path} to step {end}, in memory ...")
        return progress(load_config(path / "config.yaml"), end)

    found = verify_run(path, start, say, watchers)
    say(_verdict(found))
    result(
        {
            "run": str(path),
            "verified": found.exit_status == 0,
            "from": found.start,
            "to": found.end,
            "log_lines": found.rows,
            "equal": [{"step": step, "what": what} for step, what in found.equal],
            "differs": [each._asdict() for each in found.differs],
            "damaged": [each._asdict() for each in found.damaged],
        }
    )
    if found.exit_status:
        raise typer.Exit(found.exit_status)


def _verdict(found: Verification) -> str:
    """The last line."""
    steps = f"{found.end - found.start} steps" + (f" from step {found.start} on" if found.start else "")
    if found.differs:
        first = found.differs[0]
        return (
            f"NOT verified: the run differs from its replay, first seen at step {first.step} in {first.file}. Another "
            "version, backend or processor may compute other bits; `entrenar train` on this machine gives its own"
        )
    if found.damaged:
        names = ", ".join(dict.fromkeys(each.file for each in found.damaged))
        return f"NOT verified: damaged are {names}; the rest is equal over {steps}"
    return f"verified: {steps}, {len(found.equal)} states and {found.rows} lines of the log are equal, bit for bit"
