"""What an import of cupyconv brings with it, each asked in a Python of its own."""

from __future__ import annotations

import subprocess
import sys

WITHOUT_CUPY = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"cupy", "cupyx", "cupy_backends", "scipy", "ml_dtypes"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""

CALLS = """
import numpy, cupyconv, cupyconv.cudnn

x = numpy.ones((2, 4, 8, 8), numpy.float32)
w = numpy.ones((4, 4, 3, 3), numpy.float32)
c = numpy.ones(4, numpy.float32)
cupyconv.conv2d(x, w, c, stride=2, padding="valid")
cupyconv.conv_transpose2d(x, w, c, stride=2)
cupyconv.depthwise_conv2d(x, w[:, :1])
cupyconv.grad.conv2d_input((2, 4, 10, 10), w, x)
cupyconv.grad.conv2d_weight(x, (4, 4, 3, 3), x, padding=1)
cupyconv.signal.convolve(x, w[:1], "same", axes=(-2, -1))
cupyconv.signal.correlate(x[0, 0], 1j * w[0, 0])
cupyconv.cudnn.convolution_forward(
    x, w, c, numpy.empty((2, 4, 6, 6), x.dtype), 0, 1, 1, 1, auto_tune=True, tensor_core="auto"
)
cupyconv.batch_norm(x)
cupyconv.group_norm(x, 2)
cupyconv.max_pool2d(x, 2)
cupyconv.conv_transpose2d_batchnorm_tanh_maxpool_groupnorm(x, w, c, c, c, c, num_groups=2)
with cupyconv.precision("tf32"):
    cupyconv.conv2d(x, w)
"""

LOADED = """
import sys
print(*sorted({"cupy", "cupyx", "cupy_backends", "scipy", "torch"} & set(sys.modules)))
"""

BY_FFT = """
import numpy, cupyconv

x = numpy.ones((2, 4, 8, 8), numpy.float32)
w = numpy.ones((4, 4, 3, 3), numpy.float32)
assert numpy.allclose(cupyconv.conv2d(x, w, method="fft"), 36)
assert numpy.allclose(cupyconv.conv2d(x, w, method="auto"), 36)
assert numpy.allclose(cupyconv.grad.conv2d_weight(x, w.shape, x[..., 2:, 2:], method="fft"), 72)
"""

DRIVER = """
print(*[line for line in open("/proc/self/maps") if "libcuda" in line or "libnvrtc" in line])
"""


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_loads_neither_cupy_nor_scipy():
    assert python("import cupyconv" + LOADED) == ""


def test_calls_on_numpy_arrays_load_neither_cupy_nor_scipy():
    assert python(CALLS + LOADED) == ""


def test_import_and_calls_touch_no_cuda_library():
    """Without the driver's library in the process there can be no CUDA context."""
    assert python(CALLS + DRIVER) == ""


def test_numpy_arrays_work_without_cupy():
    assert python(WITHOUT_CUPY + CALLS) == ""


def test_transforms_work_without_scipy():
    """By NumPy; where SciPy is installed, it is loaded with the first of them, and CuPy is not."""
    assert python(WITHOUT_CUPY + BY_FFT + LOADED) == ""
    assert python(BY_FFT + LOADED) == "scipy"
