"""Peak resident memory of ``from_pretrained``: at most a tenth above the file, in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from entrenar.models import build

STATUS = Path("/proc/self/status")
pytestmark = pytest.mark.skipif(
    not STATUS.exists() or "VmHWM" not in STATUS.read_text(), reason="needs the peak (VmHWM) that Linux counts"
)
CHILD = """
import sys
from pathlib import Path
from entrenar.models import from_pretrained

def peak():
    line = next(s for s in Path("/proc/self/status").read_text().splitlines() if s.startswith("VmHWM"))
    return int(line.split()[1]) * 1024

small, folder, dtype = sys.argv[1:]
from_pretrained(small)  # what is imported on first use is not what loading takes
base = peak()
model = from_pretrained(folder, None if dtype == "None" else dtype)
print(peak() - base)
"""
WIDE = dict(hidden_size=512, intermediate_size=2048, num_hidden_layers=6, num_attention_heads=8)
ROWS = {  # 100 to 160 MB of float32
    "gpt2": dict(vocab_size=20_000, n_positions=64, n_embd=512, n_layer=6, n_head=8),
    "llama": dict(vocab_size=10_000, num_key_value_heads=2, **WIDE),
    "bert": dict(vocab_size=20_000, **WIDE),
}


@pytest.mark.parametrize(
    ("family", "stored", "dtype"), [(f, "float32", None) for f in ROWS] + [("llama", "bfloat16", "float32")]
)
def test_loading_peaks_at_most_a_tenth_above_the_model(family, stored, dtype, tmp_path):
    names = (
        ("n_layer", "n_embd", "n_head")
        if family == "gpt2"
        else ("num_hidden_layers", "hidden_size", "num_attention_heads")
    )
    shrunk = dict(zip(names, (1, 16, 2), strict=True)) | ({} if family != "llama" else {"num_key_value_heads": 1})
    build(family, {**ROWS[family], **shrunk, "vocab_size": 10}).to(stored).save_pretrained(tmp_path / "small")
    model = build(family, ROWS[family]).to(stored)
    model.save_pretrained(tmp_path / "large", max_shard_bytes=60_000_000)
    size = sum(f.stat().st_size for f in (tmp_path / "large").glob("*.safetensors"))
    size *= 2 if stored == "bfloat16" else 1
    assert size > 90e6
    run = subprocess.run(
        [sys.executable, "-c", CHILD, tmp_path / "small", tmp_path / "large", str(dtype)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert 0.9 < int(run.stdout) / size <= 1.1
