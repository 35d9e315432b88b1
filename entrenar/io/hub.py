"""Folders of the Hugging Face hub: downloaded on first use, then taken from the cache."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from .errors import DataError
from .shards import ADVICE

# what a model and its tokenizer are read from
FILES = (
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)
# second copies of the weights, in a layout of their own: of other runtimes in subfolders, of Mistral's own loader
COPIES = ("*/*", "consolidated*.safetensors")
# as huggingface_hub has it: two parts of at most 96, no "--" or "..", no "-" or "." at an end, no ".git"
PART = r"\w([\w.-]{0,94}\w)?"
NAME = re.compile(rf"(?!.*(--|\.\.))(?!.*\.git$)({PART}/)?{PART}", re.ASCII)


def hub_folder(
    name_or_folder: str | Path,
    files: Sequence[str] | None = None,
    cache_dir: str | Path | None = None,
    revision: str | None = None,
) -> Path:
    """The folder of a model: a folder that exists, as it is; else the hub's model of that name ("org/model").

    A folder never touches the network.  A name is downloaded on first use by ``huggingface_hub``, which honours
    HF_HOME, HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE; once all its files are in the cache, the hub is not asked again
    (to follow a branch that moved, give its commit as ``revision``).

    files: patterns of what is needed (fnmatch), by default the weights in safetensors, configuration and tokenizer.
    cache_dir: instead of $HF_HOME/hub.  revision: branch, tag or commit, by default "main"; for a name only.

    Raises DataError, with what to do, for a folder that does not exist, what can be no name, and a download that fails.
    """
    name = str(name_or_folder)
    folder = Path(os.path.expanduser(name))
    if name and os.path.isdir(folder):
        if revision is not None:
            raise DataError(f"{folder} is a folder: it has no revision {revision!r}")
        return folder
    if name and os.path.exists(folder):
        raise DataError(f"{folder} is a file: give the folder that it is in")
    if isinstance(name_or_folder, Path) or name.startswith((".", "~")) or name.count("/") > 1 or _is_path(name):
        raise DataError(f"{name!r}: no such folder (and no name on the hub: those are 'org/model')")
    if not NAME.fullmatch(name):
        raise DataError(
            f"{name!r} is no folder, and no name on the hub: those are 'org/model', of letters, digits, '-', '_', '.'"
        )
    found = _download(name, FILES if files is None else files, COPIES if files is None else (), cache_dir, revision)
    if files is None and not any(found.glob("*.safetensors")):
        raise DataError(f"{name!r} has no *.safetensors on the hub. If it has a pytorch_model.bin, that is {ADVICE}")
    return found


def _is_path(name: str) -> bool:
    return not name or name[0] == "/" or name[-1] == "/" or "\\" in name or Path(name).is_absolute()


def _download(
    name: str, files: Sequence[str], without: Sequence[str], cache_dir: str | Path | None, revision: str | None
) -> Path:
    from huggingface_hub import constants, errors, get_cached_repo_tree, snapshot_download

    def fetch(local: bool) -> Path:
        return Path(
            snapshot_download(
                name,
                revision=revision,
                cache_dir=cache_dir,
                allow_patterns=list(files),
                ignore_patterns=list(without),
                local_files_only=local,
            )
        )

    try:
        # that a snapshot is whole is known only from the hub's list of its files: others may have fetched some
        get_cached_repo_tree(name, revision=revision, cache_dir=cache_dir)
        return fetch(local=True)
    except (errors.CachedRepoTreeNotFoundError, errors.LocalEntryNotFoundError):
        pass
    at = constants.ENDPOINT
    try:
        return fetch(local=False)
    except errors.GatedRepoError:
        problem = f"access is granted by its authors: ask for it at {at}/{name}, then set HF_TOKEN to a token of yours"
    except errors.RepositoryNotFoundError:
        problem = f"no folder here, and {at} has no model of that name (a private one needs HF_TOKEN)"
    except errors.RevisionNotFoundError:
        problem = f"{at}/{name} has no revision {revision or 'main'!r}"
    except errors.LocalEntryNotFoundError as error:
        if constants.is_offline_mode():
            problem = "not (whole) in the cache, and HF_HUB_OFFLINE forbids to download it: unset it, or give a folder"
        else:
            problem = f"not (whole) in the cache, and {at} cannot be reached: {_first_line(error.__cause__ or error)}"
    except Exception as error:  # of whichever HTTP client the library uses, or of the disk
        problem = f"the download from {at} failed, call again to resume it: {_first_line(error)}"
    raise DataError(f"{name!r}: {problem}")


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".strip().splitlines()[0]
