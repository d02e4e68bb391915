r"""
Enlargement without checkerboards
=================================

A transposed convolution of stride 2 doubles the size of an image: each input pixel adds a copy of
the kernel to the output, and neighbouring copies begin two pixels apart. Networks that draw images
learn such kernels. Their pictures often show a fine chequered pattern, and its cause is arithmetic:
where the kernel's size is not a multiple of the stride, some output pixels receive more copies than
their neighbours [1]_.

This page counts the copies, shows what they do to a photograph, learns kernels of three sizes by
least squares, and ends with what ``output_padding`` does and does not do.

*Data:* ``skimage.data.astronaut``, a photograph of Eileen Collins by NASA, in the public domain; it
is part of scikit-image.
"""

# sphinx_gallery_thumbnail_number = 2

import matplotlib.pyplot as plt
import numpy as np
import skimage.data

import cupyconv
from gallery import BLUE, GREEN, GREY, ORANGE, PURPLE, plots, show, to_host, xp

photograph = xp.asarray(skimage.data.astronaut().transpose(2, 0, 1) / 255, dtype=xp.float32)
face = photograph[:, 24:184, 136:296]

# %%
# Counting the copies
# -------------------
#
# Ones as input and ones as kernel count how many inputs reach each output. With kernel 4 each
# output of the interior has two; with 3 and 5, every second one has one more than its neighbours.
# Each colour is an input. In two dimensions the counts multiply, to 1, 2, 2 and 4 for kernel 3.

SIZES = (3, 4, 5)
INPUTS = 6


def options(size):
    """What makes the output of stride 2 exactly twice as large as the input."""
    return {"stride": 2, "padding": (size - 1) // 2, "output_padding": size % 2}


titles = (f"kernel {size}, stride 2" for size in SIZES)
for ax, size in zip(plots(*titles, xlabel="output", sharey=True), SIZES, strict=True):
    # Each input is a channel of its own, so that what it adds is seen apart.
    copies = cupyconv.conv_transpose1d(
        xp.eye(INPUTS)[None], xp.ones((INPUTS, 1, size)), stride=2, groups=INPUTS
    )
    copies = to_host(copies[0])
    below = np.cumsum(copies, axis=0) - copies
    for copy, bottom, colour in zip(copies, below, 2 * (BLUE, ORANGE, GREEN), strict=True):
        ax.bar(range(copy.size), copy, 0.9, bottom, color=colour, edgecolor="white")
    ax.set_xticks(range(0, copies.shape[1], 2))
    ax.set_yticks(range(4))
plt.show()

# %%
# What they do to an image
# ------------------------
#
# The simplest kernel weights all copies alike. We halve the face by 2 × 2 means, a convolution of
# stride 2, and double it again with flat kernels whose gain is one on average. The number is the
# spread of the mean brightness of the four sublattices of the output, one for each remainder of row
# and column by 2: nothing but a checkerboard moves all of a sublattice.


def for_each_channel(kernel):
    return xp.tile(xp.asarray(kernel, dtype=xp.float32), (3, 1, 1, 1))


def flat(size):
    return xp.full((size, size), 4 / size**2)


def halve(image):
    return cupyconv.conv2d(image, for_each_channel(flat(2) / 4), stride=2, groups=3)


def double(image, kernel):
    weight = for_each_channel(kernel)
    return cupyconv.conv_transpose2d(image, weight, groups=3, **options(len(kernel)))


def checkerboard(image, stride=2, border=8):
    """Standard deviation of the sublattices' means, relative to the mean of the image."""
    inner = image[..., border:-border, border:-border]
    means = [inner[..., i::stride, j::stride].mean() for i in range(stride) for j in range(stride)]
    return float(np.std([float(mean) for mean in means])) / float(inner.mean())


small = halve(face)
doubled = {size: double(small, flat(size)) for size in SIZES}
show(
    {"original": face}
    | {
        f"flat kernel {size}: checkerboard {100 * checkerboard(image):.1f} %": image
        for size, image in doubled.items()
    },
    columns=2,
)
plt.show()

# %%
# A learned kernel
# ----------------
#
# Enlargement is linear in the kernel, so the best one for a given photograph is a least-squares
# problem, with one unknown for each tap. One call gives all its columns: with the unit kernels as
# the output channels, channel *k* is what tap *k* contributes. We learn from the lower half of the
# photograph and judge by the face, which is in the upper one.


def learn(image, size):
    units = xp.eye(size**2, dtype=xp.float32).reshape(1, size**2, size, size)
    columns = cupyconv.conv_transpose2d(halve(image)[:, None], units, **options(size))
    columns = columns[..., 8:-8, 8:-8].swapaxes(0, 1).reshape(size**2, -1).astype(xp.float64)
    target = image[:, 8:-8, 8:-8].ravel()
    return xp.linalg.solve(columns @ columns.T, columns @ target).reshape(size, size)


def psnr(image, original):
    """Peak signal-to-noise ratio in dB, without the border."""
    return float(-10 * xp.log10(((image - original)[:, 8:-8, 8:-8] ** 2).mean()))


def bilinear(factor):
    size = 2 * factor - factor % 2
    tent = 1 - xp.abs(xp.arange(size) - (size - 1) / 2) / factor
    return xp.outer(tent, tent)


kernels = {f"learned, {size} × {size}": learn(photograph[:, 256:], size) for size in SIZES}
kernels["bilinear, 4 × 4"] = bilinear(2)
white = xp.ones((3, 32, 32), dtype=xp.float32)
for name, kernel in kernels.items():
    quality = psnr(double(small, kernel), face)
    pattern = checkerboard(double(white, kernel))
    print(f"{name}: {quality:.2f} dB, checkerboard on white {100 * pattern:.3f} %")

axes = show(kernels, cmap="RdBu", vmin=-1.1, vmax=1.1)
for ax, kernel in zip(axes.flat, kernels.values(), strict=True):
    for (i, j), value in np.ndenumerate(to_host(kernel)):
        colour = "white" if abs(value) > 0.7 else "black"
        ax.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=7, color=colour)
plt.show()

# %%
# An enlargement keeps a white area white if the taps that share an output add up to one in each of
# the four sublattices. Least squares comes close to that, because photographs have large even
# areas: in kernel 3 the middle tap alone is 1, and so are the sums of the two or four taps that
# share the other outputs, up to a fifth of a percent. Kernel 5 has enough taps to sharpen as well,
# so its error is the smallest, but its pattern is the strongest. Kernel 4 leaves the least. The
# mean of 2 × 2 pixels lies between the pixels, where a kernel of even size has its centre; the
# other two are lopsided to make up for that.
#
# The bilinear kernel needs no learning. For an enlargement by *s* it has the size ``2*s - s % 2``
# and sums that are exactly one, which makes it the usual first guess for a kernel that is then
# learned [2]_.

for factor in (2, 3, 4, 5):
    kernel = bilinear(factor)[None, None]
    padding = factor // 2
    out = cupyconv.conv_transpose2d(xp.ones((1, 9, 9)), kernel, stride=factor, padding=padding)
    inner = out[0, factor:-factor, factor:-factor]
    print(
        f"by {factor}: kernel {kernel.shape[-1]}, {out.shape[-1]} = 9 * {factor}, "
        f"between {float(inner.min())} and {float(inner.max())}"
    )

# %%
# What ``output_padding`` is for
# ------------------------------
#
# A convolution of stride 2 gives inputs of size 15 and 16 the same output size, 8. On the way back,
# ``output_padding`` says which of the two is meant. It lengthens the output at its end and enters
# no index: it neither adds copies nor moves them.
#
# Below, the linear kernel of size 3, which needs ``output_padding=1`` to double a size, against the
# one of size 4. With an input of ones, the output that ``output_padding`` adds hangs on one tap,
# and that end comes out at half brightness. With a ramp, all of the output stands half a pixel
# beside its place. Kernel 4 is symmetric, and what it lacks at the two ends is cured by repeating
# the border pixel first.

linear = {3: xp.asarray([0.5, 1, 0.5]), 4: xp.asarray([0.25, 0.75, 0.75, 0.25])}
ones, ramp = xp.ones((1, 8)), xp.arange(8.0)[None] + 0.5
gain, line = (
    {
        size: to_host(cupyconv.conv_transpose1d(x, kernel[None, None], **options(size))[0])
        for size, kernel in linear.items()
    }
    for x in (ones, ramp)
)
repeated = cupyconv.conv_transpose1d(
    xp.pad(ones, ((0, 0), (1, 1)), mode="edge"), linear[4][None, None], stride=2, padding=3
)

places = np.arange(16)
left, right = plots("ones, doubled", "a ramp, doubled", xlabel="output")
left.plot(places, gain[3], "o-", color=ORANGE, label="kernel 3, output_padding 1")
left.plot(places, gain[4], "s-", color=BLUE, label="kernel 4")
left.plot(places, to_host(repeated[0]), ":", color=PURPLE, label="kernel 4, border repeated")
left.set_ylim(0, 1.15)
left.legend(fontsize=8, loc="lower center", frameon=False)
right.plot(places, (places + 0.5) / 2, "-", color=GREY, linewidth=1, label="the ramp itself")
right.plot(places, line[3], "o", color=ORANGE, markersize=4, label="kernel 3, output_padding 1")
right.plot(places, line[4], "s", color=BLUE, markersize=4, label="kernel 4")
right.legend(fontsize=8, loc="upper left", frameon=False)
plt.show()

# %%
# .. [1] A. Odena, V. Dumoulin and C. Olah, `Deconvolution and checkerboard artifacts
#    <https://doi.org/10.23915/distill.00003>`__, Distill, 2016.
# .. [2] J. Long, E. Shelhamer and T. Darrell, `Fully convolutional networks for semantic
#    segmentation <https://doi.org/10.1109/CVPR.2015.7298965>`__, CVPR, 2015.
