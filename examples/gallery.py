"""What the scripts share: where they run, and how they show images and curves."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

WIDTH = 8.4  # of a figure, in inches
# Colours that the colour-blind can tell apart (Okabe and Ito).
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072b2", "#c96a00", "#00805e", "#a34d7f", "#777777"


def array_module() -> ModuleType:
    """CuPy where it finds a GPU, else NumPy."""
    try:
        import cupy
    except ImportError:
        return np
    return cupy if cupy.cuda.is_available() else np


xp = array_module()


def to_host(array: Any) -> np.ndarray:
    """A NumPy array of the same values."""
    return np.asarray(array) if isinstance(array, np.ndarray) else array.get()


def show(images: Mapping[str, Any], *, columns: int | None = None, **options: Any) -> np.ndarray:
    """Draw images of shape (H, W) or (3, H, W) in rows, each below its title.

    Colours are clipped to [0, 1]; grey ones take the options of ``imshow``. Returns the axes.
    """
    columns = columns or len(images)
    rows = -(-len(images) // columns)
    height, width = next(iter(images.values())).shape[-2:]
    panel, title = WIDTH / columns - 0.1, 0.34  # inches
    figure, axes = plt.subplots(
        rows,
        columns,
        figsize=(WIDTH, rows * (panel * height / width + title)),
        layout="constrained",
        squeeze=False,
    )
    figure.get_layout_engine().set(w_pad=0.03, h_pad=0.05)
    for ax in axes.flat:
        ax.set_axis_off()
    for ax, (name, image) in zip(axes.flat, images.items(), strict=False):
        pixels = to_host(image)
        if pixels.ndim == 3:
            ax.imshow(pixels.transpose(1, 2, 0).clip(0, 1), interpolation="nearest")
        else:
            ax.imshow(pixels, **{"cmap": "gray", "interpolation": "nearest", **options})
        ax.set_title(name, fontsize=9)
    return axes


def plots(*titles: str, xlabel: str, height: float = 2.6, **options: Any) -> np.ndarray:
    """Make plots in a row, each below its title. Returns the axes."""
    size = (WIDTH, height)
    _, axes = plt.subplots(1, len(titles), figsize=size, layout="constrained", **options)
    for ax, title in zip(axes, titles, strict=True):
        ax.set_title(title, fontsize=9)
        ax.set_xlabel(xlabel, fontsize=9)
        ax.tick_params(labelsize=8)
        ax.spines[["top", "right"]].set_visible(False)
    return axes
