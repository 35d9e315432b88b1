"""Learning-rate schedules: functions of the number of updates done, one row each in SCHEDULES.

The first updates warm up linearly, update k (from 0) at peak (k + 1) / warmup: the first is never 0, and warm-up ends
on the peak.  Then a row takes over, with a fraction of the peak that is never below ``floor``.  One row is told
something on the way (plateau: validation losses); what it made of it is in its state, as in ``vars(schedule)``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeVar

from ..array import nearest

MAX_WARMUP = 0.3  # of a run
T = TypeVar("T", bound="type[Schedule]")
SCHEDULES: dict[str, type[Schedule]] = {}


def schedule(name: str) -> Callable[[T], T]:
    """Enter the decorated class in the table under ``name`` (as configurations write it).

    Raises ValueError if the name is taken by another class.
    """

    def register(cls: T) -> T:
        if name in SCHEDULES and SCHEDULES[name].__qualname__ != cls.__qualname__:
            raise ValueError(f"schedule {name!r} is already {SCHEDULES[name].__qualname__}")
        SCHEDULES[name] = cls
        return cls

    return register


@dataclass(frozen=True)
class Schedule:
    """A row of the table between ``peak`` and ``floor * peak``; ``Schedule("cosine", ...)`` makes a Cosine.

    warmup_steps, decay_steps: updates each part takes; decay_steps may be 0 (the floor follows the warm-up at once).
    Further options are those of the row.  Raises ValueError for an unknown name or a number out of range, TypeError for
    an option that the row lacks.
    """

    ranges: ClassVar[dict[str, tuple[float, float]]] = {}  # option of the row -> [low, high] it must lie in
    whole: ClassVar[tuple[str, ...]] = ()  # options that are integers
    choices: ClassVar[dict[str, tuple[str, ...]]] = {}
    has_warmup: ClassVar[bool] = False  # the row rises by itself: warmup_steps must be 0

    name: str
    peak: float
    decay_steps: int
    warmup_steps: int = 0
    floor: float = 0.0

    def __new__(cls, name: str | None = None, *args: Any, **options: Any) -> Schedule:  # None: copies are made so
        if name is None:
            return object.__new__(cls)
        if name not in SCHEDULES:
            raise ValueError(f"unknown schedule {name!r}: known are {sorted(SCHEDULES)}.{nearest(name, SCHEDULES)}")
        row = SCHEDULES[name]
        if not issubclass(row, cls):
            raise ValueError(f"schedule {name!r} is {row.__name__}, not {cls.__name__}")
        known = [f.name for f in fields(row) if f.init]
        for option in options:
            if option not in known:
                raise TypeError(
                    f"schedule {name!r} has no option {option!r}: known are {known}.{nearest(option, known)}"
                )
        return object.__new__(row)

    def __post_init__(self) -> None:
        for option in ("decay_steps", "warmup_steps"):
            value = getattr(self, option)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ValueError(f"schedule: {option} must be an integer of at least 0, got {value!r}")
        if not _number(self.peak) or not 0 <= self.peak < math.inf:
            raise ValueError(f"schedule: peak must be a finite number of at least 0, got {self.peak!r}")
        if not _number(self.floor) or not 0 <= self.floor <= 1:
            raise ValueError(f"schedule: floor is a fraction of the peak, from 0 to 1, got {self.floor!r}")
        if self.has_warmup and self.warmup_steps:
            raise ValueError(
                f"schedule {self.name!r} warms up by itself: warmup_steps must be 0, got {self.warmup_steps}"
            )
        for option, (low, high) in self.ranges.items():
            value = getattr(self, option)
            if value is None and type(self).__dataclass_fields__[option].default is None:
                continue
            kind = "an integer" if option in self.whole else "a number"
            if not _number(value) or (option in self.whole and not isinstance(value, int)) or not low <= value <= high:
                raise ValueError(f"schedule {self.name!r}: {option} must be {kind} in [{low}, {high}], got {value!r}")
        for option, known in self.choices.items():
            if (value := getattr(self, option)) not in known:
                raise ValueError(f"schedule {self.name!r}: {option} must be one of {list(known)}, got {value!r}")

    def lr(self, step: int) -> float:
        """The learning rate of update ``step`` (from 0).  Raises ValueError for a negative one."""
        if step < 0:
            raise ValueError(f"schedule: updates count from 0, got {step}")
        if step < self.warmup_steps:
            return self.peak * (step + 1) / self.warmup_steps
        return self.peak * self.fraction(step - self.warmup_steps)

    __call__ = lr

    def fraction(self, after: int) -> float:
        """The fraction of the peak, ``after`` updates beyond the warm-up, from ``floor`` to 1."""
        raise NotImplementedError(f"{type(self).__name__} does not define fraction")

    def down(self, curve: Callable[[float], float], after: float, length: float) -> float:
        """A curve from 1 to 0 over ``length`` updates, laid between 1 and the floor, where it stays."""
        progress = min(after / length, 1.0) if length > 0 else 1.0
        return self.floor + (1.0 - self.floor) * curve(progress)

    def observe(self, metric: float) -> None:
        """Be told a validation's metric.  Only ``plateau`` heeds it."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides what comes next, fit for JSON."""
        return copy.deepcopy(vars(self))

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take over what a ``state_dict`` (or ``vars``) says was observed; sizes and options stay.

        Raises ValueError for the state of another kind of schedule.
        """
        if saved.get("name") != self.name:
            raise ValueError(f"schedule {self.name!r}: the state is of {saved.get('name')!r}")


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _cosine(progress: float) -> float:
    return 0.5 * (1.0 + math.cos(math.pi * progress))


@schedule("constant")
@dataclass(frozen=True)
class Constant(Schedule):
    """The peak throughout."""

    def fraction(self, after: int) -> float:
        """1."""
        return 1.0


@schedule("linear")
@dataclass(frozen=True)
class Linear(Schedule):
    """A straight line to the floor."""

    def fraction(self, after: int) -> float:
        """1 - progress, above the floor."""
        return self.down(lambda progress: 1.0 - progress, after, self.decay_steps)


@schedule("cosine")
@dataclass(frozen=True)
class Cosine(Schedule):
    """Half a cosine to the floor (Loshchilov and Hutter 2017, eq. 5)."""

    def fraction(self, after: int) -> float:
        """(1 + cos(pi progress)) / 2, above the floor."""
        return self.down(_cosine, after, self.decay_steps)


@schedule("step")
@dataclass(frozen=True)
class Step(Schedule):
    """Times ``gamma`` after every ``step_size`` updates, as PyTorch's StepLR; never below the floor.

    step_size: None for a third of decay_steps, the floor at once if there are none.
    """

    ranges = {"step_size": (1, math.inf), "gamma": (0.0, 1.0)}
    whole = ("step_size",)

    step_size: int | None = None
    gamma: float = 0.1

    def fraction(self, after: int) -> float:
        """gamma ** (updates // step_size)."""
        size = math.ceil(self.decay_steps / 3) if self.step_size is None else self.step_size
        return max(self.floor, self.gamma ** (after // size)) if size else self.floor


@schedule("exponential")
@dataclass(frozen=True)
class Exponential(Schedule):
    """Times ``gamma`` after every update, as PyTorch's ExponentialLR; never below the floor.

    gamma: None for the one that reaches the floor after decay_steps, which must then be above 0.
    """

    ranges = {"gamma": (0.0, 1.0)}

    gamma: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gamma is None and self.floor == 0:
            raise ValueError("schedule 'exponential': give gamma, or a floor above 0 for it to reach, got neither")

    def fraction(self, after: int) -> float:
        """gamma ** updates, or floor ** progress."""
        if self.gamma is not None:
            return max(self.floor, self.gamma**after)
        return self.floor ** (min(after / self.decay_steps, 1.0) if self.decay_steps else 1.0)


@schedule("one_cycle")
@dataclass(frozen=True)
class OneCycle(Schedule):
    """Up to the peak from ``1 / div_factor`` of it, then down to the floor, the last update's rate.

    Smith and Topin 2018, as PyTorch's OneCycleLR with total_steps = decay_steps, three_phase=False and a
    final_div_factor of 1 / (div_factor floor); momentum is left alone.

    pct_start: the share of the updates that rise, at most 0.3.  anneal: half a cosine ("cos") or a line ("linear").
    """

    has_warmup = True
    ranges = {"pct_start": (0.0, MAX_WARMUP), "div_factor": (1.0, math.inf)}
    choices = {"anneal": ("cos", "linear")}

    pct_start: float = 0.3
    div_factor: float = 25.0
    anneal: str = "cos"

    def fraction(self, after: int) -> float:
        """Updates are at both ends of a part: the first at its start, the last at its end."""
        curve = _cosine if self.anneal == "cos" else lambda progress: 1.0 - progress
        top = max(self.pct_start * self.decay_steps - 1.0, 0.0)
        if after < top:
            low = 1.0 / self.div_factor
            return 1.0 + (low - 1.0) * curve(after / top)
        return self.down(curve, after - top, self.decay_steps - 1.0 - top)


@schedule("wsd")
@dataclass(frozen=True)
class WSD(Schedule):
    """Warm-up, the peak for ``stable`` of the run (warm-up included), then half a cosine to the floor.

    Hu et al. 2024 (MiniCPM), section 4.
    """

    ranges = {"stable": (0.0, 1.0)}

    stable: float = 0.4

    def fraction(self, after: int) -> float:
        """1, then Cosine's."""
        held = min(round(self.stable * (self.warmup_steps + self.decay_steps)), self.decay_steps)
        return 1.0 if after < held else self.down(_cosine, after - held, self.decay_steps - held)


@schedule("plateau")
@dataclass(frozen=True)
class Plateau(Schedule):
    """Times ``factor`` when ``patience`` observed metrics in a row were no better than the best; never below the floor.

    PyTorch's ReduceLROnPlateau.  Better is by ``threshold``, relative to the best ("rel") or not ("abs"), downwards
    ("min") or upwards ("max"); NaN is not.  After a reduction ``cooldown`` metrics do not count.  How often it is told
    one is the caller's choice; decay_steps is of no effect, and the warm-up's rates are not reduced.
    """

    ranges = {"factor": (0.0, 1.0), "patience": (0, math.inf), "threshold": (0.0, math.inf), "cooldown": (0, math.inf)}
    whole = ("patience", "cooldown")
    choices = {"mode": ("min", "max"), "threshold_mode": ("rel", "abs")}

    factor: float = 0.1
    patience: int = 10
    threshold: float = 1e-4
    cooldown: int = 0
    mode: str = "min"
    threshold_mode: str = "rel"
    state: dict[str, Any] = field(
        init=False, compare=False, default_factory=lambda: {"fraction": 1.0, "best": None, "bad": 0, "cooling": 0}
    )

    def fraction(self, after: int) -> float:
        """What the metrics so far have left."""
        return max(self.floor, self.state["fraction"])

    def observe(self, metric: float) -> None:
        """Be told a validation's metric.  Raises TypeError for what is not a number."""
        if not _number(metric):
            raise TypeError(f"schedule 'plateau': the metric must be a number, got {metric!r}")
        state = self.state
        if self._better(metric, state["best"]):
            state["best"], state["bad"] = float(metric), 0
        else:
            state["bad"] += 1
        if state["cooling"]:
            state["cooling"] -= 1
            state["bad"] = 0
        if state["bad"] > self.patience:
            state["fraction"] = max(self.floor, state["fraction"] * self.factor)
            state["bad"], state["cooling"] = 0, self.cooldown

    def _better(self, metric: float, best: float | None) -> bool:
        if best is None:
            return not math.isnan(metric)
        sign = 1.0 if self.mode == "max" else -1.0
        margin = self.threshold * (best if self.threshold_mode == "rel" else 1.0)
        return metric * sign > (best + sign * margin) * sign

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take over the observations.  Raises ValueError for the state of another kind of schedule."""
        super().load_state_dict(saved)
        if not isinstance(saved.get("state"), Mapping) or saved["state"].keys() != self.state.keys():
            raise ValueError(f"schedule 'plateau': state must have {sorted(self.state)}, got {saved.get('state')!r}")
        self.state.update(saved["state"])


def check_warmup(warmup_steps: int, total_steps: int) -> None:
    """Raise ValueError if warm-up takes more than 30 % of a run of ``total_steps`` updates."""
    most = round(MAX_WARMUP * 10) * total_steps // 10
    if warmup_steps > most:
        raise ValueError(
            f"warm-up of {warmup_steps} steps is more than 30 % of the run's {total_steps}: at most {most}"
        )


def run_schedule(
    name: str, peak: float, total_steps: int, warmup_steps: int = 0, floor: float = 0.0, **options: Any
) -> Schedule:
    """The schedule of a run of ``total_steps`` updates, warm-up included; ``options`` are those of its row.

    Raises ValueError if warm-up takes more than 30 % of the run.
    """
    check_warmup(warmup_steps, total_steps)
    make: Any = Schedule
    return make(name, peak, total_steps - warmup_steps, warmup_steps, floor, **options)
