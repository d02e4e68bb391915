"""Two jobs on a photograph: a bilinear enlargement and a Gaussian blur.

A photograph of shape (height, width, 3) goes through the library as (1, 3, height, width).
Both jobs repeat its border pixels outwards, so that the borders come out neither dark nor short.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.ndimage
import skimage.data
from PIL import Image, ImageDraw, ImageFont

import cupyconv

from . import reference
from .backend import Array, Backend
from .jobs import Job

FACTOR = 4
SIGMA = 5.0
RADIUS = 15
MARGIN = 12
CAPTION = 40


def photograph() -> np.ndarray:
    """The eye of Chelsea the cat, as float32 between 0 and 1."""
    crop = skimage.data.chelsea()[80:200, 120:280]
    return np.ascontiguousarray(crop.transpose(2, 0, 1)[None], dtype=np.float32) / 255


def bilinear_kernel(factor: int) -> np.ndarray:
    """A tent of half-width ``factor``: each input pixel spreads over its neighbours' places."""
    size = 2 * factor - factor % 2
    tent = 1 - np.abs(np.arange(size) - (size - 1) / 2) / factor
    return np.outer(tent, tent).astype(np.float32)


def gaussian_kernel(sigma: float, radius: int) -> np.ndarray:
    """A column; the kernel is a product of this and of the row with the same values."""
    bell = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    return (bell / bell.sum()).astype(np.float32)[:, None]


def for_each_channel(kernel: np.ndarray) -> np.ndarray:
    return np.tile(kernel, (3, 1, 1, 1))


def extend(xp, image: Array, margin: int) -> Array:
    return xp.pad(image, ((0, 0), (0, 0), (margin, margin), (margin, margin)), mode="edge")


def enlargement(backend: Backend, image: np.ndarray) -> Job:
    """Stride is the factor; padding cuts off half the kernel's overlap and the repeated pixel."""
    weight = for_each_channel(bilinear_kernel(FACTOR))
    padding = FACTOR // 2 + FACTOR

    def call(x: Array, w: Array) -> Array:
        extended = extend(backend.xp, x, 1)
        return cupyconv.conv_transpose2d(extended, w, stride=FACTOR, padding=padding, groups=3)

    def error(result: np.ndarray) -> float:
        exact = scipy.ndimage.zoom(
            image.astype(np.float64),
            (1, 1, FACTOR, FACTOR),
            order=1,
            mode="nearest",
            grid_mode=True,
        )
        return reference.relative_error(result, exact)

    def peer(x: Array, _: Array) -> Array:
        factors = (1, 1, FACTOR, FACTOR)
        return backend.ndimage.zoom(x, factors, order=1, mode="nearest", grid_mode=True)

    name = "bilinear enlargement of a photograph\nconv_transpose2d, each channel"
    return Job(name, (image, weight), call, error, peer)


def blur(backend: Backend, image: np.ndarray) -> Job:
    weight = for_each_channel(gaussian_kernel(SIGMA, RADIUS))

    def call(x: Array, w: Array) -> Array:
        columns = cupyconv.depthwise_conv2d(extend(backend.xp, x, RADIUS), w)
        return cupyconv.depthwise_conv2d(columns, w.swapaxes(2, 3))

    def error(result: np.ndarray) -> float:
        exact = scipy.ndimage.gaussian_filter(
            image.astype(np.float64), SIGMA, mode="nearest", radius=RADIUS, axes=(2, 3)
        )
        return reference.relative_error(result, exact)

    def peer(x: Array, _: Array) -> Array:
        sigmas = (0, 0, SIGMA, SIGMA)
        return backend.ndimage.gaussian_filter(x, sigmas, mode="nearest", truncate=RADIUS / SIGMA)

    name = "Gaussian blur of a photograph\ntwo depthwise_conv2d, columns and rows"
    return Job(name, (image, weight), call, error, peer)


def save(path: Path, image: np.ndarray, enlarged: np.ndarray, blurred: np.ndarray) -> None:
    """The three pictures side by side; the original's pixels become squares of that size."""
    squares = image.repeat(FACTOR, axis=2).repeat(FACTOR, axis=3)
    panels = {
        "original, {} x {} pixels".format(*image.shape[:1:-1]): squares,
        f"bilinear enlargement by {FACTOR}, conv_transpose2d": enlarged,
        f"Gaussian blur, sigma {SIGMA:g}, depthwise_conv2d": blurred,
    }
    height, width = enlarged.shape[2:]
    size = (MARGIN + len(panels) * (width + MARGIN), CAPTION + height + MARGIN)
    sheet = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(size=20)
    for place, (caption, panel) in enumerate(panels.items()):
        left = MARGIN + place * (width + MARGIN)
        pixels = np.rint(panel[0].transpose(1, 2, 0).clip(0, 1) * 255).astype(np.uint8)
        sheet.paste(Image.fromarray(pixels), (left, CAPTION))
        draw.text((left, CAPTION / 2), caption, fill="black", font=font, anchor="lm")
    path.parent.mkdir(exist_ok=True)
    sheet.save(path)
