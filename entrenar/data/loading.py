"""A tokenizer from wherever it is: a run of ours, a Hugging Face folder, a file, the hub."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ..array import nearest
from ..io import DataError, hub_folder
from .byte import ByteTokenizer
from .chat import FILE as TEMPLATE
from .interface import tokenizer_file
from .tokenizer import CharTokenizer
from .tokenizer_file import CONFIG, FILE, GENERATION, MAP, HFTokenizer, file_bytes

OURS: dict[str, Any] = {"char": CharTokenizer, "byte": ByteTokenizer}
OWN = re.compile(rb'\s*\{\s*"type"\s*:\s*"')  # how they begin; no other tokenizer.json has a type
NEEDED = (FILE, CONFIG, MAP, GENERATION, "config.json", TEMPLATE)


def load_tokenizer(source: str | Path) -> Any:
    """The ``Tokenizer`` of a folder's tokenizer.json, of a file, or of a name on the hub ("org/model").

    A file of ours is characters or bytes; any other is read by ``tokenizers``, with what the files beside it say of
    special tokens.  From the hub only the tokenizer is downloaded, on first use.
    Raises DataError naming a file that is missing or broken, or a name that the hub does not have.
    """
    path = Path(source).expanduser()
    file = path if path.is_file() else tokenizer_file(path)
    if not path.exists() and path.suffix != ".json":
        file = hub_folder(source, NEEDED) / FILE
    content = file_bytes(file)
    if not OWN.match(content[:256]):
        return HFTokenizer.load(file)
    try:
        kind = json.loads(content)["type"]
    except ValueError as error:
        raise DataError(f"{file}: cannot be read as a tokenizer: {error}") from None
    if kind not in OURS:
        raise DataError(f"{file}: a tokenizer of type {kind!r}: known are {list(OURS)}.{nearest(str(kind), OURS)}")
    return OURS[kind].load(file)
