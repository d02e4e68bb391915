"""The fuzz: what it draws, what its checks find, and what becomes of workers that hang or die.

On NumPy and on the emulator it runs here, on fewer and smaller calls than on a GPU.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import digest
import fuzz
import fuzz_cases
import reference
from backends import EmulatorBackend
from bounds import assert_close, assert_same_bits
from cupyconv import _chunks, _fft, _numpy_fft
from cupyconv._kernels import im2col_conv, matrix_blocks, max_pool2d, relayed, row_blocks
from cupyconv._kernels.choice import KERNELS
from cupyconv._kernels.launches import Processor
from emulator.device import EmulatedDevice
from fuzz_cases import Example
from fuzz_checks import Checker, Wrong
from fuzz_definitions import largest, sums, weight_sums
from fuzz_sizes import ON_EMULATOR, ON_GPU, ON_NUMPY, Budget
from gradients import KINDS, Gradient
from planning import forget
from reference import Sums
from running import Recorder
from strategies import Convolution, convolution

numbers = st.integers(0, 2**32 - 1)


def tap_by_tap(case: Convolution | Gradient) -> Sums:
    """The sums that the fuzz compares the result of a call with."""
    rank, mode = len(case.axes), case.padding_mode
    batches = {
        name: a[None] if a.ndim == rank + 1 and name in ("input", "grad_output") else a
        for name, a in case.arrays.items()
        if a is not None
    }
    if isinstance(case, Convolution):
        x, w, bias = (batches.get(name) for name in ("input", "weight", "bias"))
        found = sums(x, w, bias, case.axes, case.groups, case.transposed, mode)
        unbatched = case["input"].ndim == rank + 1
    elif case.kind == "input":
        y, w = batches["grad_output"], batches["weight"]
        found = sums(y, w, None, case.axes, case.options["groups"], True, mode)
        unbatched = case["grad_output"].ndim == rank + 1
    else:
        x, y = batches["input"], batches["grad_output"]
        return weight_sums(x, y, case.axes, case.options["groups"], mode)
    return found._replace(value=found.value[0], scale=found.scale[0]) if unbatched else found


@pytest.mark.emulator
def test_divided_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are relayed in chunks of samples, in blocks of output channels, with the same bits."""
    case = convolution("conv2d", (3, 64, 9, 11), (640, 64, 3, 3), "float16", padding=1)
    x = np.ascontiguousarray(np.moveaxis(case["input"], 1, -1))
    case = case.with_arrays(input=np.moveaxis(x, -1, 1))
    expected = EmulatorBackend("portable").compute(case)
    for module, name in DIVIDED:  # restores them afterwards
        monkeypatch.setattr(module, name, getattr(module, name))
    fuzz.divide()
    forget()
    backend = Recorder("portable")
    assert_same_bits(backend.compute(case), expected)
    functions = Counter(launch.instance.function for launch in backend.launches)
    assert functions["channels_last"] == 3
    assert functions["matrix_conv"] > 3
    forget()


DIVIDED = [
    (relayed, "LEAST_BYTES"),
    (relayed, "LEAST_WIDTH"),
    (_chunks, "_CHUNK_BYTES"),
    (row_blocks, "most_workspace"),
    (im2col_conv, "most_workspace"),
    (matrix_blocks, "_TURN_BYTES"),
    (matrix_blocks, "_KEPT_BYTES"),
    (max_pool2d, "_MOST_BETWEEN"),
    (_fft, "_SPARE_BYTES"),
]


@given(number=numbers)
@example(number=1_546_029_070)
def test_definition_tap_by_tap(number: int) -> None:
    """The sums that results are compared with on a GPU equal the reference's."""
    drawn = fuzz_cases.example(0, number, ON_EMULATOR)
    case = drawn.case
    if case.function == "max_pool2d":
        expected = reference.max_pool2d(case["input"], **case.options)
        found = largest(case["input"], expected.shape, **case.options)
        assert_close(found + 0, (expected + 0).astype(found.dtype), 0.0, found.dtype)
    if not isinstance(case, (Convolution, Gradient)) or len(drawn.cases) > 1:
        return
    with np.errstate(all="ignore"):
        found, expected = tap_by_tap(case), case.defined
    assert_same_bits(np.broadcast_to(found.terms, expected.terms.shape).copy(), expected.terms)
    if case.dtype.kind in "iu":
        assert_same_bits(found.value.astype(case.dtype), expected.value)
        return
    error = (
        2
        * (expected.terms + 2)
        * 2.0**-53
        * np.where(np.isfinite(expected.scale), expected.scale, 0)
    )
    assert_close(found.value, expected.value, error, found.value.dtype)
    assert_close(found.scale, expected.scale, error, found.scale.dtype)


@given(number=numbers)
def test_numpy(number: int) -> None:
    Checker("numpy").run(fuzz_cases.example(0, number, ON_NUMPY), number)


def test_calls_run_by_fft(monkeypatch: pytest.MonkeyPatch) -> None:
    """A share of them, in which a result that is wrong by a hundredth is found."""
    checker = Checker("numpy")
    for number in range(150):
        checker.run(fuzz_cases.example(1, number, ON_NUMPY), number)
    assert checker.by_fft > 3
    inverse = _numpy_fft.inverse
    monkeypatch.setattr(_numpy_fft, "inverse", lambda *arguments: inverse(*arguments) * 1.01)
    with pytest.raises(AssertionError, match="elements are wrong"):
        for number in range(150):
            checker.run(fuzz_cases.example(1, number, ON_NUMPY), number)


@pytest.fixture(scope="module")
def emulator() -> Iterator[Checker]:
    with pytest.MonkeyPatch.context() as patch:  # which takes away what counts launches
        patch.setattr(EmulatedDevice, "launcher", EmulatedDevice.launcher)
        yield Checker("emulator")


@pytest.mark.emulator
@given(number=numbers)
def test_emulator(emulator: Checker, number: int) -> None:
    emulator.run(fuzz_cases.example(0, number, ON_EMULATOR), number)


@pytest.mark.parametrize("budget", [ON_GPU, ON_NUMPY, ON_EMULATOR])
def test_what_is_drawn(budget: Budget) -> None:
    """Each kind of call, kernel, layout and empty axis; within the budget, and the same again."""
    drawn = [fuzz_cases.example(7, number, budget) for number in range(700)]
    kinds = Counter(example.kind for example in drawn)
    assert kinds.keys() >= {"conv", "conv_transpose", "batch_norm", "group_norm", "max_pool2d"}
    assert kinds["chain"] and kinds[fuzz_cases.FUSED]
    assert {k for example in drawn for order in example.kernels for k in order} >= {
        None,
        *KERNELS,
    }
    assert {x for example in drawn for x in example.layouts.values()} >= set(fuzz_cases.LAYOUTS)
    assert {f"grad.conv2d_{kind}" for kind in KINDS} <= kinds.keys()
    inputs = [example.case["input"] for example in drawn if "input" in example.case.arrays]
    assert any(x.size == 0 and min(x.shape[:2]) > 0 for x in inputs)
    assert any(x.shape[0] == 0 for x in inputs) and any(x.shape[1] == 0 for x in inputs)
    assert max(x.size for x in inputs) <= max(budget.elements, 48 * 1024)
    again = fuzz_cases.example(7, 3, budget).case
    assert_same_bits(again["input"], drawn[3].case["input"])


# What the checks find ------------------------------------------------------------------------


def single(**layouts: str) -> Example:
    case = convolution("conv2d", (3, 4, 6, 7), (5, 4, 3, 3), bias=True, padding=1)
    return Example([case], [(None,)], layouts)


def one_ulp(call: int, result: Any, arguments: Any) -> None:
    if call == 1:  # the second one
        result.flat[3] = np.nextafter(result.flat[3], np.inf, dtype=result.dtype)


def a_last_column(call: int, result: Any, arguments: Any) -> None:
    result[..., -1] *= 1.01


def not_a_number(call: int, result: Any, arguments: Any) -> None:
    result[-1, -1, -1, -1] = np.nan


def an_input(call: int, result: Any, arguments: Any) -> None:
    if "out" in arguments:  # the last call
        arguments["weight"][0, 0, 0, 0] += 1


def by_the_batch(call: int, result: Any, arguments: Any) -> None:
    if result.shape[0] == 1:
        result[...] = np.nextafter(result, np.inf, dtype=result.dtype)


def beside_out(call: int, result: Any, arguments: Any) -> None:
    if result.base is not None and result.base.size > result.size:
        result.base[np.isnan(result.base)] = 0


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (one_ulp, "once more"),
        (a_last_column, "elements are wrong"),
        (not_a_number, "elements are wrong"),
        (an_input, "was written to"),
        (by_the_batch, "alone"),
        (beside_out, "between the elements"),
    ],
)
def test_what_the_checks_find(
    spoil: Callable[..., None], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checker = Checker("numpy")
    checker.run(single(out="cropped"), 0)
    original, calls = checker.backend.call, iter(range(100))

    def call(function: str, **arguments: Any) -> Any:
        result = original(function, **arguments)
        spoil(next(calls), result, arguments)
        return result

    monkeypatch.setattr(checker.backend, "call", call)
    with pytest.raises(AssertionError, match=message):
        checker.run(single(out="cropped"), 0)


def test_a_failure_is_told_with_all_that_replays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(*arguments: Any, **options: Any) -> Any:
        raise Wrong("something")

    checker = Checker("numpy")
    monkeypatch.setattr(checker.backend, "call", call)
    found = fuzz.run("numpy", 5, 11, checker)
    assert found is not None
    assert '"seed": 5, "number": 11' in found and "something" in found and "input=" in found


# Workers -------------------------------------------------------------------------------------


def scripted(task: fuzz.Task, state: Any, parent: Any) -> None:
    """A worker that fails at 1, ends its process at 3, hangs at 5 and is done after 7."""
    for number in range(task.first, 8, task.step):
        state[0], state[1] = number, time.time()
        if number == 1:
            parent.send(("failed", number, "number one"))
        elif number == 3:
            os._exit(9)
        elif number == 5:
            time.sleep(1000)
        parent.send(("counts", 1, {"conv": 2}, {"direct_conv": 3}))
    parent.send(("done",))


def test_workers_that_hang_or_die_are_replaced() -> None:
    task = fuzz.Task("numpy", 0, 0, 1, time.time() + 60)
    summary = fuzz.supervise([task], scripted, limit=2.0)
    assert summary.examples == 6
    assert summary.calls == {"conv": 12} and summary.launches == {"direct_conv": 18}
    one, three, five = summary.failures
    assert one == "number one"
    assert '"number": 3' in three and "exit code 9" in three and "input=" in three
    assert '"number": 5' in five and "hangs" in five and "input=" in five


def test_a_run_on_numpy(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz.main(["--seed=1", "--seconds=1", "--backend=numpy", "--workers=2"]) == 0
    assert "calls a second" in capsys.readouterr().out
    assert fuzz.main(["--seed=1", "--replay", "3", "4", "--backend=numpy"]) == 0
    assert '"number": 4' in capsys.readouterr().out


# The digest of launches ----------------------------------------------------------------------


def test_a_digest_is_that_of_the_launches() -> None:
    processor = Processor("sm_90a", 132)
    cases = [
        convolution("conv2d", (2, 16, 9, 9), (24, 16, 3, 3), padding=padding) for padding in (1, 0)
    ]
    one, other = (digest.noted(case, (None, "portable"), processor) for case in cases)
    assert one == digest.noted(cases[0], (None, "portable"), processor)
    assert len({one, other, digest.noted(cases[0], (None,), processor)}) == 3
