"""The benchmark suite's machinery: fair pairs, clean processes, no time without a right result, the tables."""

import importlib
import json
import math
import shutil
import statistics
from pathlib import Path

import numpy as np
import pytest

from benchmarks import case, child, gpt, llama, machine, process, runner, table, timing

ROOT = Path(__file__).resolve().parents[1]
PLANTED = '''
"""Cases that take no time."""
import os
import time

import numpy as np

from benchmarks.case import Case, Peer, Side, Unavailable


def value(x, seconds=0.0):
    """A side that computes x."""
    return lambda: Side(lambda: time.sleep(seconds), lambda: {"x": np.array(x, np.float32)})


def loaded():
    """entrenar itself, and whatever its folder's name says."""
    import entrenar as en

    x = en.tensor([1.0, 2.0])
    return Side(lambda: en.exp(x), lambda: {"y": en.exp(x).numpy()})


def missing():
    raise Unavailable("no clang")


def fails():
    raise RuntimeError("3 is not 4")


def dies():
    os._exit(7)


def case(name, peer, **rest):
    return Case(name, value([1.0, 2.0], 0.0), peer, tolerance=1e-5, **rest)


CASES = [
    case("slow", {"numpy": Peer(value([1.0, 2.0], 0.01), target=1e-9, memory=10.0)}, traffic=8.0, memory=True, pairs=2),
    case("wrong", {"numpy": Peer(value([1.0, 3.0]))}),
    case("coarse", {"numpy low": Peer(value([1.0, 2.1]), tolerance=0.1)}, timed=False),
    case("failing", {"numpy": Peer(fails), "other": Peer(dies)}),
    case("lacking", {"numpy": Peer(missing), "other": Peer(value([1.0, 2.0]), extra=True)}),
    Case("ours", loaded, {}, tolerance=0.0, pairs=1),
]
'''


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """Arguments that name the cases above, importable here and in the children."""
    (tmp_path / "planted.py").write_text(PLANTED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(runner.Runner, "measured", lambda self: {"gemm": 1e9, "copy": 1e9})
    importlib.invalidate_caches()
    return ["--modules", "planted"]


def run(planted, *arguments):
    return runner.main([*planted, *arguments])


# clocks -------------------------------------------------------------------------------------------------------
def test_sides_take_turns_in_going_first():
    order = []
    timing.in_turn(lambda: order.append("a") or 1.0, lambda: order.append("b") or 1.0, 3)
    assert "".join(order) == "ab" + "ab" + "ba" + "ab"  # a warm-up first


def test_the_ratio_is_the_median_over_pairs():
    ours, theirs = iter([7.0, 1.0, 2.0, 3.0]), iter([7.0, 4.0, 9.0, 4.0])
    found = timing.in_turn(lambda: next(ours), lambda: next(theirs), 3)
    assert (found.ours, found.theirs, found.ratio, found.pairs) == (2.0, 4.0, 0.25, 3)
    assert found.low == statistics.mean([2 / 9, 0.25]) and found.high == 0.5


def test_a_turn_is_the_median_without_its_first_run(monkeypatch):
    times = iter([0.04, 0.01, 0.03, 0.02])
    monkeypatch.setattr(timing, "seconds", lambda run: next(times))
    assert timing.turn(lambda: None) == 0.02
    times = iter([5.0])  # a long run fills the turn
    assert timing.turn(lambda: None) == 5.0


def test_quartiles_of_one_pair_are_that_pair():
    assert timing.quartiles([3.0]) == (3.0, 3.0, 3.0)


# validation ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ({"a": [1.0, 2.0]}, {"a": [1.0, 2.0]}, 0.0),
        ({"a": [3.0, 0.0]}, {"a": [4.0, 0.0]}, 0.25),  # relative to the element
        ({"a": [4.0, 1.0]}, {"a": [4.0, 0.0]}, 1 / math.sqrt(8)),  # small: relative to the array
        ({"a": [0.0]}, {"a": [0.0]}, 0.0),
        ({"a": [1.0]}, {"a": [0.0]}, math.inf),
        ({"a": [math.nan, math.inf]}, {"a": [math.nan, math.inf]}, 0.0),
        ({"a": [math.nan]}, {"a": [1.0]}, math.inf),
        ({"a": [1.0]}, {"a": [math.inf]}, math.inf),
        ({"a": [1.0, math.inf]}, {"a": [2.0, math.inf]}, 0.5),
        ({"a": [1.0]}, {"a": [1.0, 1.0]}, math.inf),
        ({"a": [1.0]}, {"b": [1.0]}, math.inf),
        ({}, {}, math.inf),
    ],
)
def test_deviation(ours, theirs, expected):
    assert case.deviation(ours, theirs) == pytest.approx(expected)


def test_large_results_are_thinned_in_every_column(tmp_path):
    big = np.arange(6_000_000.0).reshape(-1, 3)
    child.save(case.Side(lambda: None, lambda: {"big": big, "small": big[:2]}), str(tmp_path / "r.npz"))
    with np.load(tmp_path / "r.npz") as saved:
        assert set(saved["big"] % 3) == {0.0, 1.0, 2.0} and saved["big"].size == -(-big.size // child.STRIDE)
        assert saved["small"].shape == (2, 3)


# processes ----------------------------------------------------------------------------------------------------
def test_a_side_computes_with_this_processors_kernels(monkeypatch):
    for name in process.DROPPED:
        monkeypatch.setenv(name, "anything")
    found = process.environment(3, Path("/a/tree"))
    assert not set(process.DROPPED) & set(found)
    assert {found[name] for name in process.THREADS} == {"3"}
    assert found["PYTHONPATH"].startswith("/a/tree")


def test_a_valid_result_is_timed_and_written(planted, tmp_path, capsys):
    assert run(planted, "slow", "--out", str(tmp_path / "out")) == runner.DONE  # a missed target is no failure
    line = capsys.readouterr().out
    assert "slow" in line and "MISSED" in line and "memory <= 10.00 met" in line
    written = json.loads((tmp_path / "out" / "bench.json").read_text())
    (row,) = written["results"]
    assert row["state"] == "valid" and row["times"]["pairs"] == 2 and 0 < row["times"]["ratio"] < 1
    assert row["times"]["low"] <= row["times"]["ratio"] <= row["times"]["high"]
    assert row["targets"]["time"]["met"] is False and row["share"] == row["rate"] / 1e9
    assert min(row["memory"]) > 1 << 20
    about = written["machine"]
    assert about["threads"] == 2 and about["processor"] and about["cores"] >= 1 and about["python"]
    assert {"entrenar", "numpy"} <= set(about["versions"])
    text = (tmp_path / "out" / "bench.md").read_text()
    assert "| slow | numpy |" in text and about["python"] in text and "GB/s" in text and text.endswith("|\n")
    head = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in head}) == 1


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("wrong", runner.INVALID, "invalid: the results differ by 0.333"),
        ("failing", runner.INVALID, "failed: RuntimeError: 3 is not 4"),
        ("failing", runner.INVALID, "failed: ended with status 7"),
        ("lacking", runner.DONE, "skipped: no clang"),
        ("coarse", runner.DONE, "valid: results agree to 4.8e-02"),
    ],
)
def test_what_is_not_timed_says_why(planted, tmp_path, capsys, name, status, said):
    assert run(planted, name, "--out", str(tmp_path / "out")) == status
    assert said in capsys.readouterr().out
    written = json.loads((tmp_path / "out" / "bench.json").read_text())
    assert all(row["times"] is None for row in written["results"])
    assert said in (tmp_path / "out" / "bench.md").read_text()


def test_slow_peers_are_asked_for(planted, capsys):
    assert run(planted, "lacking", "--all", "--quick") == runner.DONE
    assert "other" in capsys.readouterr().out


def test_another_checkout_is_the_peer(planted, tmp_path, capsys):
    other = tmp_path / "other"
    shutil.copytree(ROOT / "entrenar", other / "entrenar", ignore=shutil.ignore_patterns("__pycache__"))
    assert run(planted, "ours", "--against", str(other)) == runner.DONE
    assert "entrenar at other" in capsys.readouterr().out
    exp = other / "entrenar" / "ops" / "exponential.py"
    changed = exp.read_text().replace("return np.exp(x)", "return np.exp(x) * 2", 1)
    assert changed != exp.read_text()
    exp.write_text(changed)
    assert run(planted, "ours", "--against", str(other)) == runner.INVALID  # so it is the other one that ran
    assert "invalid" in capsys.readouterr().out


# the call -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["--case", "nonsense"], ["--repeats", "0"], ["--against", "/nowhere"]]
)
def test_a_wrong_call_is_refused_by_value(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        runner.main(arguments)
    assert arguments[-1] in capsys.readouterr().err


def test_cases_are_chosen_by_part_of_a_name_or_glob(capsys):
    cases = case.table()
    assert [c.name for c in case.select(cases, ["OVERHEAD"])] == ["overhead, per op"]
    assert all(c.name.startswith("gelu") for c in case.select(cases, ["gelu*"]))
    assert case.select(cases, []) == list(cases.values())
    assert runner.main(["--list", "--case", "overhead"]) == runner.DONE
    assert capsys.readouterr().out.split()[0] == "overhead,"


@pytest.mark.parametrize(
    ("arguments", "expected"), [([], 9), (["--quick"], 3), (["--repeats", "4"], 4), (["--quick", "--repeats", "4"], 4)]
)
def test_how_many_pairs(arguments, expected, monkeypatch):
    seen = []
    monkeypatch.setattr(runner.Runner, "rows", lambda self, cases, pairs, extra: seen.append(pairs(cases[0])) or [])
    runner.main(["--case", "char-GPT step", *arguments])
    assert seen == [expected]


# the cases ----------------------------------------------------------------------------------------------------
def test_a_name_stands_for_one_case(planted):
    with pytest.raises(ValueError, match="second"):
        case.table(["overhead", "overhead"])


def test_every_target_of_a_share_has_a_rate():
    for found in case.table().values():
        assert found.share is None or found.flops or found.traffic
        assert not (found.flops and found.traffic)


def test_weights_fit_the_model_and_the_flop_count():
    import entrenar as en

    c = gpt.Config(vocabulary=11, width=8, layers=2, heads=2, batch=2, length=5)
    config = en.models.GPT2Config(vocab_size=11, n_positions=5, n_embd=8, n_layer=2, n_head=2)
    state = en.models.GPT2(config).state_dict()
    assert {name: tuple(value.shape) for name, value in state.items()} == gpt.shapes(c)
    assert sum(value.size for value in state.values()) == c.parameters
    assert gpt.GPT2.parameters == 124_439_808 - 768 * 768  # 256 positions of 1024
    assert c.flops == 10 * (6 * c.parameters + 12 * 2 * 5 * 8)


def test_weights_fit_the_llama_and_its_flop_count():
    import entrenar as en

    with en.nn.init.left_empty():
        state = en.models.build("llama", llama.SIZES).state_dict()
    assert {name: tuple(value.shape) for name, value in state.items()} == llama.shapes()
    products = sum(value.size for name, value in state.items() if "embed_tokens" not in name)
    assert llama.flops() == 4 * 256 * (6 * products + 12 * 12 * 256 * 768)


def test_the_machine_is_told():
    about = machine.described(["numpy", "no_such_library"], 2)
    assert about["versions"]["no_such_library"] is None and about["versions"]["numpy"] == np.__version__
    assert about["processor"]


def test_a_shared_machine_is_told():
    times = timing.Times(1.0, 1.0, 1.0, 1.0, 1.0, 5)
    assert "DISTURBED: others used 0.9 cores" in str(table.Row("n", "p", "valid", times=times, others=0.9))
    assert "DISTURBED" not in str(table.Row("n", "p", "valid", times=times, others=0.01))


def test_the_cpu_time_of_others_leaves_out_the_sides():
    class Side:
        def cpu(self):
            return 3.0

    known = runner.others(Side(), Side())
    assert known is None or known == pytest.approx(machine.busy() - 6.0, abs=5.0)


def test_json_has_no_infinities():
    row = table.Row("n", "p", "invalid", deviation=math.inf, note="a | b")
    assert table.report([row], {})["results"][0]["deviation"] is None
    json.dumps(table.report([row], {}), allow_nan=False)
    assert "a \\| b" in table.markdown([row], machine.described([], 2))
