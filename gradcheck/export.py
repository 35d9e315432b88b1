"""Reports as files for other programs: JSON, and JUnit XML for continuous integration."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from .report import Report


def write_json(path: str | Path, reports: Sequence[Report], *, seconds: float | None = None) -> None:
    """All reports and their totals.  Numbers that JSON has no word for (NaN, infinity) become strings."""
    document: dict[str, Any] = {
        "passed": all(r.passed for r in reports),
        "checks": sum(r.checks for r in reports),
        "worst_relative_error": max((r.worst for r in reports), default=0.0),
        "reports": [r.to_dict() for r in reports],
    }
    if seconds is not None:
        document["seconds"] = round(seconds, 3)
    Path(path).write_text(json.dumps(_plain(document), indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def write_junit(path: str | Path, reports: Sequence[Report], *, seconds: float = 0.0) -> None:
    """One test case per report; a report that did not pass is a failure with the whole note as its text."""
    failures = sum(not r.passed for r in reports)
    suite = ElementTree.Element(
        "testsuite",
        name="gradcheck",
        tests=str(len(reports)),
        failures=str(failures),
        errors="0",
        time=f"{seconds:.3f}",
    )
    for report in reports:
        case = ElementTree.SubElement(suite, "testcase", classname="gradcheck", name=report.name)
        if not report.passed:
            message = report.verdict + (f", {report.kind}" if report.kind else "")
            ElementTree.SubElement(case, "failure", message=message, type=report.verdict).text = str(report)
        output = f"{report.checks} numbers compared, worst relative error {report.worst:.1e}"
        ElementTree.SubElement(case, "system-out").text = output
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    Path(path).write_bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n")
