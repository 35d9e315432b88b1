"""F4: modules, the usual layers, initialisers, losses as modules."""

from . import init
from .activations import (
    GELU,
    Dropout,
    Flatten,
    Identity,
    LeakyReLU,
    LogSoftmax,
    ReLU,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Tanh,
)
from .containers import ModuleList, Sequential
from .convolution import AvgPool2d, BatchNorm1d, BatchNorm2d, Conv1d, Conv2d, GroupNorm, MaxPool2d
from .layers import Embedding, LayerNorm, Linear, RMSNorm
from .losses import BCEWithLogitsLoss, CrossEntropyLoss, HuberLoss, KLDivLoss, L1Loss, MSELoss, NLLLoss
from .module import LoadReport, Module, Parameter, StateDictError, count_parameters

__all__ = [
    "GELU",
    "AvgPool2d",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "Conv1d",
    "Conv2d",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "Flatten",
    "GroupNorm",
    "HuberLoss",
    "Identity",
    "KLDivLoss",
    "L1Loss",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LoadReport",
    "LogSoftmax",
    "MSELoss",
    "MaxPool2d",
    "Module",
    "ModuleList",
    "NLLLoss",
    "Parameter",
    "RMSNorm",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "StateDictError",
    "Tanh",
    "count_parameters",
    "init",
]
