"""Runs the shipped kernels on the CPU, on NumPy arrays, by the ordinary planner and packing."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import subprocess
import tempfile
import threading
import weakref
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.lib.stride_tricks import as_strided

from cupyconv import _compile
from cupyconv._device import Arguments
from cupyconv._kernels.launches import Instance, Launch, Processor
from cupyconv._launch import KernelPath
from cupyconv._tensor_maps import Boxes, Pixels

HERE = Path(__file__).parent
BUILD = HERE / "build"
VALID, WRITTEN, PENDING = 1, 2, 4
IS_TENSOR_MAP, IS_WINDOW = 0x7E5042, 0x7E5043
MULTIPROCESSORS = 2  # few, so that each has many tiles

# The compiler calls the runtime before each access, and where an address does not suit a type.
# No library is linked, neither the compiler's own ones for these checks nor those that the runtime
# has loaded.
INSTRUMENTED = (
    "-fsanitize=thread,alignment,integer-divide-by-zero,bounds",
    "-fvisibility=hidden",  # kernels of one name must not share their shared memory
    "-nostdlib",
)
FLAGS = ("-std=c++17", "-fPIC", "-Wno-unknown-pragmas")
# Most instances run a few small calls, and optimising them would take longer than it saves. These
# kernels are quick to compile, and take all random calls.
OPTIMISED = ("direct_conv.cu", "max_pool2d.cu", "normalize.cu", "plain_conv.cu")
HEADERS = ("runtime.hpp", "vocabulary.hpp")


class KernelError(AssertionError):
    """What a kernel did wrong."""


class BuildError(KernelError):
    """What the compiler said of a kernel."""


# One for each library, so that none is built twice at once.
locks: dict[str, threading.Lock] = defaultdict(threading.Lock)


@cache
def header(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def built(text: str, *flags: str) -> Path:
    """Return the shared library of a C++ text, from an earlier build where nothing changed."""
    compiler = os.environ.get("CXX", "g++")
    parts = (compiler, text, *map(header, HEADERS), *FLAGS, *flags)
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    library = BUILD / f"{key[:32]}.so"
    with locks[key]:
        if library.exists():
            return library
        BUILD.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILD) as folder:
            source, result = Path(folder, "kernel.cpp"), Path(folder, "kernel.so")
            source.write_text(text, encoding="utf-8")
            output = ("-shared", str(source), "-o", str(result))
            command = (compiler, f"-I{HERE}", *FLAGS, *flags, *output)
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            if run.returncode:
                raise BuildError(f"{' '.join(command)}\n{run.stderr[-4000:]}")
            result.replace(library)
    return library


@lru_cache(maxsize=1)
def runtime() -> ctypes.CDLL:
    """Return the runtime; its symbols are there for the kernels' libraries."""
    include = '#include "instructions.ipp"\n'
    text = header("runtime.cpp").replace(include, header("instructions.ipp"))
    # Vectors of this machine, but no multiply-adds where there are none. Checked jumps, where a
    # distribution asks for them, go only up a stack.
    flags = ("-O3", "-march=native", "-ffp-contract=off", "-D_GLIBCXX_ASSERTIONS")
    flags += ("-U_FORTIFY_SOURCE", "-fno-semantic-interposition")  # calls within it are inlined
    library = ctypes.CDLL(str(built(text, *flags)), mode=ctypes.RTLD_GLOBAL)
    library.emulator_run.restype = ctypes.c_char_p
    return library


# The compiler instruments no load of a structure that is an argument of a call, but a load of its
# constructor. So 16-bit floats have one: their reads are checked wherever they are.
_PLAIN = "struct {name} {{\n    unsigned short bits;\n}};"
_CHECKED = """struct {name} {{
    unsigned short bits;
    {name}() = default;
    {name}(unsigned short bits) : bits(bits) {{}}
    {name}(const {name}& other) : bits(other.bits) {{}}
    {name}& operator=(const {name}& other) {{ return bits = other.bits, *this; }}
}};"""


def build(instance: Instance, source: str) -> Path:
    """Return the shared library of an instance, whose `source` may be a changed one."""
    checked = source
    for name in ("float16", "bfloat16"):
        checked = checked.replace(_PLAIN.format(name=name), _CHECKED.format(name=name))
    text = f'#include "vocabulary.hpp"\n{checked}\nEMULATED_KERNEL({instance.function})\n'
    defines = [f"-D{name}={value}" for name, value in instance.defines]
    shipped = instance.source in OPTIMISED and source == _compile.source(instance.source)
    level = "-Og" if shipped else "-O0"  # what a mutant does wrong must not be optimised away
    return built(text, *INSTRUMENTED, *defines, level)


def build_ahead(instances: Iterable[Instance]) -> None:
    """Build them by another thread, one after another, while tests run."""

    def run() -> None:
        for instance in instances:
            with contextlib.suppress(KernelError):  # the test that needs it tells
                build(instance, _compile.source(instance.source))

    threading.Thread(target=run, daemon=True).start()


@cache
def kernel(instance: Instance, source: str) -> ctypes.CDLL:
    """Return the library of an instance, whose `source` may be a changed one."""
    runtime()
    library = ctypes.CDLL(str(build(instance, source)))
    library.emulated_size.restype = ctypes.c_size_t
    return library


@cache
def image_of(name: str) -> tuple[int, int]:
    """Return where a loaded library lies in memory: its constants may be read.

    Another process may have built the same one meanwhile, in the place of this one's file.
    """
    name = os.path.realpath(name)
    spans = [
        [int(end, 16) for end in line.split()[0].split("-")]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if line.removesuffix(" (deleted)").endswith(name)
    ]
    return min(low for low, _ in spans), max(high for _, high in spans)


class Memory:
    """The bytes of an array's elements, as the runtime checks them."""

    def __init__(self, array: np.ndarray, written: bool) -> None:
        self.low, high = byte_bounds(array) if array.size else (0, 0)
        self.size = high - self.low
        self.state = np.zeros(self.size, np.uint8)
        self.writer = np.zeros(self.size, np.uint32)
        if self.size:
            self._elements(array)[...] = VALID | (WRITTEN if written else 0)

    def _elements(self, array: np.ndarray) -> np.ndarray:
        """Return the states of the elements of an array that lies in this memory."""
        start = array.__array_interface__["data"][0] - self.low
        return as_strided(self.state[start:], (*array.shape, array.itemsize), (*array.strides, 1))

    def write(self, array: np.ndarray) -> None:
        """Note that all elements of an array that lies in this memory were written."""
        self._elements(array)[...] |= WRITTEN

    def unwritten(self, array: np.ndarray) -> int:
        """Return how many bytes of an array that lies in this memory were not written."""
        return np.count_nonzero(self._elements(array) & WRITTEN == 0) if array.size else 0

    def holds(self, array: np.ndarray) -> bool:
        """Return whether an array lies between the first and the last byte of this memory."""
        low, high = byte_bounds(array)
        return self.low <= low and high <= self.low + self.size


def poison(array: np.ndarray) -> None:
    """Set all bits of the elements: NaN, or the largest integer."""
    if array.size:
        array[...] = np.frombuffer(b"\xff" * array.itemsize, array.dtype)[0]


class EmulatedDevice:
    """The CPU in the place of a GPU; a `Device` for `KernelPath`."""

    def __init__(
        self, patches: dict[str, str] | None = None, multiprocessors: int = MULTIPROCESSORS
    ) -> None:
        self.patches = patches or {}  # kernel file to changed source, for mutants
        self.multiprocessors = multiprocessors
        self.kept: dict[int, Memory] = {}  # of workspaces, whose contents outlive a launch
        self.arrays: list[Memory] = []  # of the launches of one call
        self.outputs: list[tuple[np.ndarray, Memory]] = []
        self.unpoisoned: list[np.ndarray] = []  # until the first launch: a call may yet fail

    def processor(self) -> Processor:
        """Return a GPU with every instruction."""
        return Processor("sm_90a", self.multiprocessors)

    def address(self, array: np.ndarray) -> int:
        """Return the address of the first element; launches may use the array from now on."""
        self.arrays.append(self._memory(array) or Memory(array, written=True))
        return int(array.__array_interface__["data"][0])

    def tensor_map(self, address: int, array: Boxes | Pixels) -> tuple[int, ...]:
        """Return words that the emulator reads: what the driver would refuse is an error."""
        sizes, strides = array.sizes, array.strides
        right = (
            address % 16 == 0
            and all(stride % 16 == 0 and 0 < stride < 2**40 for stride in strides)
            and all(0 < size <= 2**32 for size in sizes)
        )
        if isinstance(array, Boxes):
            right &= all(0 < count <= 256 for count in array.box)
            right &= array.box[0] * array.itemsize == 128
            words = [IS_TENSOR_MAP, address, array.itemsize, *sizes, *array.box, *strides]
        else:
            most, _ = array.most(len(array.steps))
            right &= all(-most <= corner < most for corner in (*array.lower, *array.upper))
            right &= all(1 <= step <= 8 for step in array.steps)
            right &= array.channels * array.itemsize in (16, 32, 64, 128) and array.pixels <= 1024
            axes = len(array.steps)
            right &= all(
                low <= size - 1 + high
                for low, size, high in zip(array.lower, sizes[1:-1], array.upper, strict=True)
            )
            windows = [
                low & 0xFFFF | (high & 0xFFFF) << 16 | step << 32
                for low, high, step in zip(array.lower, array.upper, array.steps, strict=True)
            ]
            missing = 3 - axes
            words = [
                *(IS_WINDOW | axes << 24 | array.itemsize << 28 | array.exact << 32, address),
                *(*sizes[:-1], *[1] * missing, sizes[-1]),
                *(*strides[:-1], *[0] * missing, strides[-1]),
                *(*windows, *[0] * missing, array.channels | array.pixels << 16),
            ]
        if not right:
            raise KernelError(f"the driver has no tensor map for {array} at {address:#x}")
        return (*words, *[0] * (16 - len(words)))

    def _memory(self, array: np.ndarray) -> Memory | None:
        """Return the memory of a workspace or an output, or of a view of one."""
        for output, memory in self.outputs:  # between whose elements inputs may lie
            if array is output or (memory.holds(array) and np.shares_memory(array, output)):
                return memory
        if id(array) in self.kept:
            return self.kept[id(array)]
        views = () if array.base is None else self.kept.values()
        return next((memory for memory in views if memory.holds(array)), None)

    def workspace(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """Return memory that nothing wrote yet."""
        array = np.empty(shape, dtype)
        poison(array)
        self.kept[id(array)] = Memory(array, written=False)
        weakref.finalize(array, self._release, id(array))
        return array

    def _release(self, key: int) -> None:
        """Forget a workspace that is gone: a later one of the same call may lie at its place."""
        memory = self.kept.pop(key, None)
        self.arrays = [other for other in self.arrays if other is not memory]

    def cast(self, array: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
        """Return `array` in `dtype`: itself, or a copy in C order."""
        return array if array.dtype == dtype else array.astype(dtype, order="C")

    def split(
        self, array: np.ndarray, real: np.ndarray, imag: np.ndarray, conjugate: bool = False
    ) -> None:
        """Copy the parts of complex numbers to two views of workspaces."""
        numbers = array.astype(np.complex64)
        real[...], imag[...] = numbers.real, -numbers.imag if conjugate else numbers.imag
        for part in (real, imag):
            memory = self._memory(part)
            assert memory is not None
            memory.write(part)

    def conjugate(self, array: np.ndarray) -> np.ndarray:
        return np.conjugate(array, order="C")

    @np.errstate(all="ignore")
    def transform(
        self, spectrum: np.ndarray, lengths: tuple[int, ...], dtype: np.dtype[Any], inverse: bool
    ) -> None:
        """Transform by NumPy, in place; lines of real numbers have room for the last frequency."""
        axes, lines = tuple(range(-len(lengths), 0)), spectrum.view(dtype)
        memory = self._memory(spectrum)
        assert memory is not None
        missing = memory.unwritten(spectrum)
        if missing:
            raise KernelError(f"{missing} bytes of a transformed array: nobody wrote them")
        if dtype.kind == "c":
            spectrum[...] = (
                np.fft.ifftn(spectrum, axes=axes, norm="forward")
                if inverse
                else np.fft.fftn(spectrum, axes=axes)
            )
        elif inverse:
            lines[..., : lengths[-1]] = np.fft.irfftn(spectrum, lengths, axes, norm="forward")
        else:
            spectrum[...] = np.fft.rfftn(lines[..., : lengths[-1]], axes=axes)

    @np.errstate(all="ignore")
    def write(self, values: np.ndarray, bias: np.ndarray | None, out: np.ndarray) -> None:
        """Write values by NumPy."""
        out[...] = values if bias is None else values + bias.astype(values.dtype)
        memory = self._memory(out)
        if memory is not None:
            memory.write(out)

    def load(self, launches: Iterable[Launch]) -> None:
        pass

    def launcher(self, launch: Launch) -> Callable[[Arguments], None]:
        """Return what runs a kernel."""
        return partial(self.run, launch)

    def run(self, launch: Launch, arguments: Arguments) -> None:
        """Run a kernel, block after block, and raise `KernelError` for what it does wrong."""
        name = launch.instance.source
        source = self.patches.get(name) or _compile.source(name)
        self.run_source(source, launch, np.asarray(arguments))

    def run_source(self, source: str, launch: Launch, arguments: np.ndarray) -> None:
        """Run a kernel of a given text."""
        instance = launch.instance
        library = kernel(instance, source)
        if library.emulated_size() != arguments.nbytes:
            raise KernelError(
                f"{instance}: {arguments.nbytes} bytes of arguments are packed for a struct of "
                f"{library.emulated_size()}"
            )
        while self.unpoisoned:
            poison(self.unpoisoned.pop())
        low, high = ctypes.c_void_p(), ctypes.c_void_p()
        library.emulated_shared_range(ctypes.byref(low), ctypes.byref(high))
        runtime().emulator_clear_arrays()
        for memory in dict.fromkeys(self.arrays):  # each once, whoever asked for its address again
            memory.state &= ~np.uint8(PENDING)
            if launch.early:  # than the end of the launch that has written these
                memory.state[memory.writer != 0] |= PENDING
            memory.writer[...] = 0
            runtime().emulator_add_array(
                ctypes.c_size_t(memory.low),
                ctypes.c_size_t(memory.size),
                memory.state.ctypes.data_as(ctypes.c_void_p),
                memory.writer.ctypes.data_as(ctypes.c_void_p),
            )
        # The same order of threads for the same call, so that a failure is one again.
        seed = zlib.crc32(f"{launch} {[memory.size for memory in self.arrays]}".encode())
        # A kernel takes any number of blocks; with fewer than planned, each has several tiles.
        blocks = -(-launch.grid // launch.unit // 2) * launch.unit if seed % 2 else launch.grid
        error = runtime().emulator_run(
            library.emulated_call,
            arguments.ctypes.data_as(ctypes.c_void_p),
            blocks,
            launch.block,
            ctypes.c_size_t(launch.shared),
            low,
            high,
            *map(ctypes.c_size_t, image_of(library._name)),
            seed,
        )
        if error:
            raise KernelError(f"{instance}: {error.decode()}")

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the arrays of launches whose result is a workspace, or was written before.

        Another workspace may lie later where one of them does.
        """
        try:
            yield
        finally:
            self.arrays = []

    @contextlib.contextmanager
    def call(self, output: np.ndarray) -> Iterator[None]:
        """Hold the arrays of one call, which writes to each element of `output`."""
        known = self._memory(output)  # workspace may be an input and an output at once
        memory = known or Memory(output, written=False)
        self.outputs = [(output, memory)]
        self.unpoisoned = [] if known else [output]
        try:
            yield
            missing = memory.unwritten(output)
            if missing:
                raise KernelError(f"{missing} bytes of the output: nobody wrote them")
        finally:
            self.arrays, self.outputs = [], []


class EmulatedPath(KernelPath):
    """The kernels' path on the emulated device."""

    device: EmulatedDevice

    def prepare(self, *arguments: Any) -> Any:
        convolve = super().prepare(*arguments)

        def checked(input: Any, weight: Any, bias: Any, out: Any) -> None:
            with self.device.call(out):
                convolve(input, weight, bias, out)

        return checked

    def prepare_weight_gradient(self, *arguments: Any) -> Any:
        gradient = super().prepare_weight_gradient(*arguments)

        def checked(input: Any, grad_output: Any, out: Any) -> None:
            with self.device.call(out):
                gradient(input, grad_output, out)

        return checked

    def prepare_pad(self, *arguments: Any) -> Any:
        pad = super().prepare_pad(*arguments)

        def checked(data: Any, wide: Any) -> None:
            with self.device.call(wide):
                pad(data, wide)

        return checked

    def prepare_fold(self, *arguments: Any) -> Any:
        fold = super().prepare_fold(*arguments)

        def checked(wide: Any, bias: Any, out: Any) -> None:
            with self.device.call(out):
                fold(wide, bias, out)

        return checked

    def prepare_sum(self, *arguments: Any) -> Any:
        add = super().prepare_sum(*arguments)

        def checked(terms: Any, out: Any) -> None:
            with self.device.call(out):
                add(terms, out)

        return checked

    def prepare_spectrum(self, *arguments: Any) -> Any:
        spectrum_of = super().prepare_spectrum(*arguments)

        def checked(array: Any) -> Any:
            with self.device.held():
                return spectrum_of(array)

        return checked

    def prepare_multiply(self, *arguments: Any) -> Any:
        multiply, adds = super().prepare_multiply(*arguments), arguments[-1]

        def checked(a: Any, b: Any, out: Any) -> None:
            with self.device.held() if adds else self.device.call(out):
                multiply(a, b, out)

        return checked

    def fused(self, *arguments: Any) -> Any:
        run = super().fused(*arguments)

        def checked(*arrays: Any) -> None:
            with self.device.call(arrays[-1]):
                run(*arrays)

        return run and checked

    def normalize(self, geometry: Any, input: Any, *rest: Any, **options: Any) -> None:
        with self.device.call(rest[-1]):
            super().normalize(geometry, input, *rest, **options)

    def max_pool2d(self, geometry: Any, input: Any, out: Any) -> None:
        with self.device.call(out):
            super().max_pool2d(geometry, input, out)
