"""F7: the trainer, run folders, checkpoints, and runs from a configuration."""

from .callbacks import Callback, EarlyStopping, StepRecord
from .checkpoint import load_checkpoint, save_checkpoint, state_hash
from .find_lr import LRSweep, find_lr
from .language import LanguageRun, check_same_run, generate_text, load_run, prepare
from .metrics import MetricsTracker
from .options import TrainConfig, TrainingFailed, TrainResult
from .plot import plot_losses
from .run_folder import RunFolder
from .signals import Interrupted
from .tracker import Tracker, TrackerError
from .trackers import TRACKERS, CSVLog, TensorBoard, Trackio, WandB, make_trackers
from .trainer import Trainer
from .transformer import TransformerTrainConfig, TransformerTrainer
from .verify import Verification, verify_run

__all__ = [
    "TRACKERS",
    "CSVLog",
    "Callback",
    "EarlyStopping",
    "Interrupted",
    "LRSweep",
    "LanguageRun",
    "MetricsTracker",
    "RunFolder",
    "StepRecord",
    "TensorBoard",
    "Tracker",
    "TrackerError",
    "Trackio",
    "TrainConfig",
    "TrainResult",
    "Trainer",
    "TrainingFailed",
    "TransformerTrainConfig",
    "TransformerTrainer",
    "Verification",
    "WandB",
    "check_same_run",
    "find_lr",
    "generate_text",
    "load_checkpoint",
    "load_run",
    "make_trackers",
    "plot_losses",
    "prepare",
    "save_checkpoint",
    "state_hash",
    "verify_run",
]
