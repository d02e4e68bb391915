"""Tensor maps: what the driver is told of arrays, by a stand-in for it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from cupyconv import _tensor_maps
from cupyconv._tensor_maps import WORDS, Boxes, Pixels, encode

WORD, POINTER = ctypes.c_uint, ctypes.c_void_p
ADDRESS = 0x7F0012345670
# The parameters of both calls, as cuda.h has them.
TILED = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, WORD, WORD, *[POINTER] * 5, *[WORD] * 4)
IM2COL = ctypes.CFUNCTYPE(
    ctypes.c_int, POINTER, WORD, WORD, *[POINTER] * 5, WORD, WORD, POINTER, *[WORD] * 4
)


def read(kind: Any, address: int, count: int) -> tuple[int, ...]:
    return tuple((kind * count).from_address(address))


class Driver:
    """Remembers what it is told, and writes a map whose last word has its highest bit set."""

    def __init__(self) -> None:
        self.status, self.told = 0, {}  # type: ignore[var-annotated]

        def tiled(
            to: int, kind: int, rank: int, address: int, sizes: int, strides: int, box: int,
            steps: int, *modes: int,
        ) -> int:  # fmt: skip
            self.told = {
                "to": to,
                "kind": kind,
                "address": address,
                "sizes": read(ctypes.c_uint64, sizes, rank),
                "strides": read(ctypes.c_uint64, strides, rank - 1),
                "box": read(WORD, box, rank),
                "steps": read(WORD, steps, rank),
                "modes": modes,
            }
            return self.written(to)

        def im2col(
            to: int, kind: int, rank: int, address: int, sizes: int, strides: int, lower: int,
            upper: int, channels: int, pixels: int, steps: int, *modes: int,
        ) -> int:  # fmt: skip
            self.told = {
                "to": to,
                "kind": kind,
                "address": address,
                "sizes": read(ctypes.c_uint64, sizes, rank),
                "strides": read(ctypes.c_uint64, strides, rank - 1),
                "lower": read(ctypes.c_int, lower, rank - 2),
                "upper": read(ctypes.c_int, upper, rank - 2),
                "copied": (channels, pixels),
                "steps": read(WORD, steps, rank),
                "modes": modes,
            }
            return self.written(to)

        self.calls = {
            "cuTensorMapEncodeTiled": TILED(tiled),
            "cuTensorMapEncodeIm2col": IM2COL(im2col),
        }

    def written(self, to: int) -> int:
        words = (ctypes.c_uint64 * WORDS).from_address(to)
        words[:] = [*range(WORDS - 1), 2**63 + 5]
        return self.status

    def __getitem__(self, name: str) -> Any:
        """The call, as the loader of libraries returns it: its parameters are not known."""
        pointer = ctypes.cast(self.calls[name], POINTER).value
        assert pointer is not None
        return ctypes.CFUNCTYPE(ctypes.c_int)(pointer)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    stand_in = Driver()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: stand_in)
    _tensor_maps._call.cache_clear()
    yield stand_in
    _tensor_maps._call.cache_clear()


# No interleaving, the 128-byte swizzle, 256 bytes brought to the L2 cache, zeros outside.
MODES = 0, 3, 3, 0
MAP = (*range(WORDS - 1), 5 - 2**63)


def test_boxes(driver: Driver) -> None:
    boxes = Boxes(2, (1000, 70, 3), (2000, 140000), (64, 128, 1))
    assert encode(ADDRESS, boxes) == MAP
    told = driver.told
    assert told.pop("to") % 64 == 0
    assert told == {
        "kind": 1,
        "address": ADDRESS,
        "sizes": boxes.sizes,
        "strides": boxes.strides,
        "box": boxes.box,
        "steps": (1, 1, 1),
        "modes": MODES,
    }


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize(
    ("itemsize", "exact", "kind"), [(4, False, 11), (4, True, 2), (2, False, 1), (2, True, 1)]
)
def test_pixels(driver: Driver, axes: int, itemsize: int, exact: bool, kind: int) -> None:
    strides = (640, 6400, 64000, 640000)
    pixels = Pixels(
        *(itemsize, (160, *(10, 11, 12)[:axes], 7), (*strides[:axes], strides[3])),
        *((-3, -2, -1)[:axes], (1, -4, 0)[:axes], (2, 1, 3)[:axes], 128 // itemsize, 128),
        exact=exact,
    )
    assert encode(ADDRESS, pixels) == MAP
    told = driver.told
    assert told.pop("to") % 64 == 0
    assert told == {
        "kind": kind,
        "address": ADDRESS,
        "sizes": pixels.sizes,
        "strides": pixels.strides,
        "lower": pixels.lower,
        "upper": pixels.upper,
        "copied": (128 // itemsize, 128),
        "steps": (1, *pixels.steps, 1),
        "modes": MODES,
    }


def test_what_the_driver_refuses(driver: Driver) -> None:
    class CUDADriverError(RuntimeError):
        pass

    driver.status = 1
    cuda = SimpleNamespace(driver=SimpleNamespace(CUDADriverError=CUDADriverError))
    with (
        mock.patch.dict("sys.modules", {"cupy": SimpleNamespace(cuda=cuda)}),
        pytest.raises(CUDADriverError),
    ):
        encode(ADDRESS, Boxes(2, (1000, 70, 3), (2000, 140000), (64, 128, 1)))
