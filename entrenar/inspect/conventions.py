"""The decisions at the edges, as a table: ``print(en.conventions())``.  Every row has a test of the same key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One point where libraries disagree, and what entrenar does."""

    key: str
    situation: str
    decision: str


ROWS = (
    Row(
        "zero_cotangent",
        "a zero cotangent",
        "an exact zero, whatever the local derivative, at every order "
        "(div, pow, sqrt, log, exp, norm ...); mul and matmul keep plain IEEE arithmetic",
    ),
    Row("relu_at_0", "relu at 0", "derivative 0"),
    Row("abs_at_0", "abs, sign at 0", "derivative 0"),
    Row("maximum_ties", "maximum, minimum at equality", "half to each; maximum(x, x) has derivative 1"),
    Row("max_ties", "max, min over an axis with k ties", "1/k each (k in int64); NaN propagates; nanmax separate"),
    Row("argmax_ties", "argmax, argmin at ties", "the first; integer, never tracked"),
    Row("clip_at_bound", "clip at a bound", "derivative 1"),
    Row("rounding", "floor, ceil, round, sign", "derivative 0; NaN in, NaN out"),
    Row("sqrt_at_0", "sqrt at 0", "+inf (0 for a zero cotangent)"),
    Row(
        "pow_at_0", "x**p at x = 0", "p>1: 0; p=1: 1; 0<p<1: +inf; p=0: 0; p<0: -inf; x**0 has derivative 0 everywhere"
    ),
    Row("pow_exponent_at_0", "d/dp x**p at x = 0", "p>=0: 0; p<0: NaN"),
    Row("norm_at_0", "norm at a zero vector", "0, whole or along an axis; inf-norm with n maxima: sign/n each"),
    Row("normalize_at_0", "normalize(x, eps) at 0", "value 0, gradient that of x / eps"),
    Row("std_of_constants", "std, var of constants", "population: 0; no degrees of freedom: NaN and a warning"),
    Row("prod_with_zeros", "prod with zeros", "the product of the others, no division"),
    Row("logsumexp_inf", "logsumexp, all -inf", "value -inf, gradient 0; some -inf: softmax with exact zeros there"),
    Row("softmax_inf", "softmax, a row all -inf", "zeros"),
    Row("zero_log_zero", "xlogy, KL, entropy", "0 * log 0 = 0"),
    Row("atan2_origin", "atan2(0, 0)", "value 0; gradient NaN for a non-zero cotangent"),
    Row("empty_axes", "cumprod, cumsum, prod of size-0 axes", "empty or identity, gradient of the input's shape"),
    Row("gather_duplicates", "an index with duplicates", "gradients add, in index order"),
    Row("setitem_duplicates", "x[idx] = v with duplicates", "the last write wins and it alone gets the gradient"),
    Row("integers", "integers, booleans", "cannot require gradients: TypeError that says .astype(float32)"),
    Row(
        "dtypes",
        "dtypes",
        "NumPy's are kept; Python floats take the default, float32, and never change a float tensor's; "
        "grad.dtype == x.dtype; mixed floats promote as NumPy does",
    ),
    Row("low_floats", "float16, bf16", "reductions and products accumulate in float32 and round once"),
    Row(
        "numpy_or_pytorch",
        "NumPy or PyTorch meaning",
        "functions as NumPy; PyTorch-only names and losses as PyTorch, "
        "kl_div by batchmean; cross_entropy takes the class axis last, or axis=1",
    ),
    Row("complex", "complex", "a Tensor refuses it by name; gradcheck checks both parts of plain functions"),
    Row("numbers", "float(t), int(t), bool(t) of a tracked tensor", "an error that names .item()"),
    Row("ndarray_op_tensor", "ndarray (op) Tensor, either order, ufuncs", "a tracked Tensor"),
    Row("asarray", "np.asarray(t) of a tracked tensor", "an error that names .detach().numpy()"),
    Row(
        "second_backward", "a second backward on one graph", "an error; with retain_graph=True gradients exactly double"
    ),
    Row("non_scalar_backward", "backward of a non-scalar without a cotangent", "an error that shows the shape"),
    Row(
        "non_finite_loss",
        "a non-finite loss",
        "detect_anomaly names the first op that made it, with file:line and indices",
    ),
    Row("loss_targets", "targets of model.loss(input_ids, targets)", "already shifted by the caller; -100 is ignored"),
    Row(
        "all_ignored",
        "cross_entropy, every target ignored",
        "mean: 0 with zero gradient; none: zeros; sum: 0; a target outside [0, C) is an error with its index",
    ),
    Row("label_smoothing", "label smoothing with ignored rows or weights", "equals the loss on the kept rows alone"),
    Row(
        "clip_grad_norm",
        "clip_grad_norm_",
        "norm in float64, returned as it was before; a non-finite one leaves the gradients and names the parameter",
    ),
    Row("adamw", "AdamW", "decay first, on the old weights; eps outside the bias-corrected root"),
    Row("warm_up", "warm-up", "the first update uses base/warmup, never 0; decay length 0 allowed"),
    Row("accumulation", "gradient accumulation", "sums over tokens divided by the tokens of the whole window"),
    Row("bf16_rounding", "bf16", "round to nearest even; NaN stays NaN"),
    Row(
        "yaml_scalars",
        "YAML scalars",
        "1.2 core: 1e-4 is a float; 1_000, 010 and 12:30 are errors; yes and no are text; "
        "duplicate and unknown keys are errors with line and nearest name",
    ),
    Row(
        "random_numbers",
        "random numbers",
        "Philox4x64-10 as numpy.random.Philox; key (seed, stream); uniforms from the top 24 or 53 bits",
    ),
    Row(
        "exit_status",
        "exit status",
        "0 done; 1 failed; 2 usage or configuration; 3 data or model file; 130 interrupted, "
        "143 terminated, after a checkpoint",
    ),
)


class Conventions:
    """The table; prints itself, iterates over its rows."""

    def __iter__(self) -> Iterator[Row]:
        return iter(ROWS)

    def __len__(self) -> int:
        return len(ROWS)

    def __getitem__(self, key: str) -> Row:
        return next(row for row in ROWS if row.key == key)

    def __str__(self) -> str:
        width = max(len(row.situation) for row in ROWS)
        return "\n".join(f"{row.situation:<{width}}  {row.decision}" for row in ROWS)

    __repr__ = __str__


def conventions() -> Conventions:
    """The decisions at the edges, where libraries disagree: ``print(en.conventions())``."""
    return Conventions()
