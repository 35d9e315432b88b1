"""F5: optimizers, learning-rate schedules, gradient clipping."""

from .adafactor import Adafactor
from .adagrad import Adagrad, RMSprop
from .adam import Adam, AdamW
from .clip import NonFiniteGradient, clip_factor, clip_grad_norm_, clip_grad_value_, grad_norm, scale_grads
from .groups import decay_groups, set_lr
from .lamb import Lamb
from .lion import Lion
from .muon import Muon, muon_groups, newton_schulz
from .optimizer import OPTIMIZERS, Optimizer, optimizer
from .schedules import SCHEDULES, Schedule, check_warmup, run_schedule, schedule
from .sgd import SGD

__all__ = [
    "OPTIMIZERS",
    "SCHEDULES",
    "SGD",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Lamb",
    "Lion",
    "Muon",
    "NonFiniteGradient",
    "Optimizer",
    "RMSprop",
    "Schedule",
    "check_warmup",
    "clip_factor",
    "clip_grad_norm_",
    "clip_grad_value_",
    "decay_groups",
    "grad_norm",
    "muon_groups",
    "newton_schulz",
    "optimizer",
    "run_schedule",
    "scale_grads",
    "schedule",
    "set_lr",
]
