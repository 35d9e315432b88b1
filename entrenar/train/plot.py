"""The loss curve of a run as a picture.  matplotlib is the extra ``plot``: without it a run goes on, and says so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..array import missing_extra
from .metrics import MetricsTracker


def smoothed(values: list[float], weight: float = 0.95) -> list[float]:
    """Exponential moving average, corrected for its start (Kingma and Ba 2015, section 3)."""
    out, mean, scale = [], 0.0, 0.0
    for value in values:
        mean = weight * mean + (1 - weight) * value
        scale = weight * scale + (1 - weight)
        out.append(mean / scale)
    return out


def plot_losses(
    metrics: MetricsTracker, paths: list[Path], baselines: Mapping[str, float] | None = None, title: str = ""
) -> None:
    """Draw training and validation loss against the step, and a level line per baseline; the suffix picks PNG or SVG.

    Raises ImportError that says how to install matplotlib if it is missing.
    """
    figure, axes = _axes("the loss curve")
    axes.plot(metrics.steps, metrics.losses, color="0.8", linewidth=0.8, label="training, each step")
    axes.plot(metrics.steps, smoothed(metrics.losses), color="tab:blue", label="training, smoothed")
    if metrics.val_losses:
        axes.plot(
            [s for s, _ in metrics.val_losses],
            [v for _, v in metrics.val_losses],
            "o-",
            color="tab:orange",
            markersize=3,
            label="validation",
        )
    for (name, level), style in zip((baselines or {}).items(), ("--", ":", "-.") * 8, strict=False):
        axes.axhline(level, color="tab:gray", linestyle=style, label=f"{name}: {level:.3f}")
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats per token)")
    axes.set_title(title)
    _save(figure, axes, paths)


def plot_sweep(lrs: list[float], losses: list[float], suggested: float, paths: list[Path]) -> None:
    """Draw the losses of a learning rate range test; files and errors as ``plot_losses``."""
    figure, axes = _axes("the sweep of learning rates")
    axes.semilogx(lrs, losses, color="0.8", linewidth=0.8, label="each step")
    axes.semilogx(lrs, smoothed(losses, 0.9), color="tab:blue", label="smoothed")
    axes.axvline(suggested, color="tab:orange", linestyle="--", label=f"suggested: {suggested:.2g}")
    axes.set_xlabel("learning rate")
    axes.set_ylabel("loss (nats per token)")
    _save(figure, axes, paths)


def _axes(what: str) -> tuple[Any, Any]:
    """An empty figure and its axes."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise missing_extra("matplotlib", "plot", what) from None
    figure = Figure(figsize=(8, 5), layout="constrained")  # no pyplot: no global state, no display
    FigureCanvasAgg(figure)
    return figure, figure.subplots()


def _save(figure: Any, axes: Any, paths: list[Path]) -> None:
    axes.grid(alpha=0.3)
    axes.legend()
    for path in paths:
        part = path.with_name(f".{path.name}.part{path.suffix}")
        figure.savefig(part, dpi=120, metadata={"Date": None} if path.suffix == ".svg" else None)
        part.replace(path)
