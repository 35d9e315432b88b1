"""The loss curve of a run as a picture.  matplotlib is the extra ``plot``: without it a run goes on, and says so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

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
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise missing_extra("matplotlib", "plot", "the loss curve") from None
    figure = Figure(figsize=(8, 5), layout="constrained")  # no pyplot: no global state, no display
    FigureCanvasAgg(figure)
    axes = figure.subplots()
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
    axes.grid(alpha=0.3)
    axes.legend()
    for path in paths:
        part = path.with_name(f".{path.name}.part{path.suffix}")
        figure.savefig(part, dpi=120, metadata={"Date": None} if path.suffix == ".svg" else None)
        part.replace(path)
