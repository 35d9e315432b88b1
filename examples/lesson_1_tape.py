"""Lesson 1: a gradient is the tape read backward.

Run it: python examples/lesson_1_tape.py
"""

import entrenar as en

x = en.tensor([1.0, 2.0], requires_grad=True)
w = en.tensor([3.0, -1.0], requires_grad=True)

# Every op on a tensor that requires a gradient is written on the tape, in the order it ran.
loss = en.sum(en.exp(w * x))
tape = en.tape(loss)
print(tape)
assert [node.op.name for node in tape.nodes] == ["mul", "exp", "sum"]

# backward() walks those lines in reverse; each op's pullback turns the output's cotangent into its inputs'.
loss.backward()
print("d loss / d x =", x.grad)
assert en.all(x.grad == w.detach() * en.exp(w * x).detach()).item()

# The saved values were freed on the way; a second walk is an error that says what to do.
try:
    loss.backward()
except en.GraphError as error:
    print("second backward:", error)
else:
    raise AssertionError("a used-up tape must refuse")
