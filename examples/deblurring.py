r"""
Richardson-Lucy deblurring
==========================

A telescope that drifts while it exposes, below an atmosphere that shimmers, spreads each star over
many pixels. The picture is a convolution of the sky with that spread, the point spread function,
and each pixel is a count of photons, with their Poisson noise. Richardson [1]_ and Lucy [2]_ found
the iteration that climbs to the sky under which the picture is most likely:

.. code-block:: none

   x  ←  x / Aᵀ1 · Aᵀ(y / Ax)

*y* is the picture, *x* the sky, *A* the convolution. All that it takes beside *A* is the transpose
of *A*, and the transpose has to be exact, up to the border of the picture. That is what
:func:`~cupyconv.conv_transpose2d` computes, with the arguments of :func:`~cupyconv.conv2d`.

*Data:* ``skimage.data.hubble_deep_field``, galaxies by NASA, in the public domain; it is part of
scikit-image.
"""

import matplotlib.pyplot as plt
import numpy as np
import skimage.data

import cupyconv
from gallery import BLUE, GREY, ORANGE, plots, show, to_host, xp

# %%
# A point spread function
# -----------------------
#
# The atmosphere's share is a Moffat profile, the usual model of a star's image. The drift is a path
# that is slow at first. The library does not flip kernels, so the image of a star is the weight
# turned by 180°. The transpose takes the same weight and undoes the turn: nothing is flipped by
# hand, here or later. The kernel is not symmetric, so a mistake would show.

RADIUS = 8
FRAME = 96  # pixels of the detector along an axis
PHOTONS = 2000  # of a white pixel


def point_spread():
    y, x = np.mgrid[-RADIUS : RADIUS + 1, -RADIUS : RADIUS + 1]
    kernel = np.zeros(x.shape)
    for t in np.linspace(0, 1, 40) ** 2:
        squared = (x + 2 - 6 * t) ** 2 + (y - 2 + 5 * t**2) ** 2
        kernel += (1 + squared / 2) ** -3
    return kernel / kernel.sum()


psf = xp.asarray(np.tile(point_spread(), (3, 1, 1, 1)))  # (3, 1, 17, 17), one a colour

# %%
# The transpose
# -------------
#
# The light of a star beyond the frame's edge falls into the frame, so the sky has to be larger than
# the picture, by the radius of the kernel on each side. That is a convolution without padding: its
# input is the sky, its output the frame. Its transpose takes a picture of the frame's size and
# gives an array of the sky's size.
#
# ``padding=RADIUS`` would be another model, in which the sky ends where the frame does. What a
# kernel reaches beyond that has no product: padding is absence. We keep both, to compare them.


def see(sky, padding=0):
    return cupyconv.conv2d(sky, psf, padding=padding, groups=3)


def spread_back(picture, padding=0):
    return cupyconv.conv_transpose2d(picture, psf, padding=padding, groups=3)


rng = np.random.default_rng(1)
for padding in (0, RADIUS):
    size = FRAME + 2 * (RADIUS - padding)
    x = xp.asarray(rng.standard_normal((3, size, size)))
    y = xp.asarray(rng.standard_normal((3, FRAME, FRAME)))
    left = float((see(x, padding) * y).sum())
    right = float((x * spread_back(y, padding)).sum())
    print(f"padding {padding}: <Ax, y> = {left:.12f}, <x, Aᵀy> = {right:.12f}")

# %%
# The picture
# -----------
#
# The sky is cut from the deep field, larger than the frame. The detector sees it through the kernel
# and counts photons.

field = skimage.data.hubble_deep_field().transpose(2, 0, 1) / 255
TOP, LEFT = 652, 466
SIZE = FRAME + 2 * RADIUS
sky = xp.asarray(PHOTONS * field[:, TOP : TOP + SIZE, LEFT : LEFT + SIZE])
picture = xp.asarray(rng.poisson(to_host(see(sky))).astype(float))

# %%
# The iteration
# -------------
#
# ``spread_back(1)`` is the share of a sky pixel's light that the frame receives: one in the middle,
# less towards the border. It is what makes the border right, in either model.


def richardson_lucy(picture, iterations, padding=0):
    """Yield the estimates of the sky."""
    received = spread_back(xp.ones_like(picture), padding)
    estimate = xp.full_like(received, float(picture.mean()))
    for _ in range(iterations):
        estimate = estimate / received * spread_back(picture / see(estimate, padding), padding)
        yield estimate


def framed(sky):
    """Cut to the frame."""
    margin = (sky.shape[-1] - FRAME) // 2
    return sky[:, margin : margin + FRAME, margin : margin + FRAME]


def psnr(image):
    return float(-10 * xp.log10(((framed(image) - framed(sky)) ** 2).mean() / PHOTONS**2))


def log_likelihood(estimate):
    """Of the picture, up to what does not depend on the sky; in nats for each pixel."""
    expected = see(estimate)
    return float((picture * xp.log(expected) - expected).mean())


ITERATIONS = 36
estimates = list(richardson_lucy(picture, ITERATIONS))
quality = [psnr(estimate) for estimate in estimates]
likelihood = [log_likelihood(estimate) for estimate in estimates]
best = int(np.argmax(quality))
*_, bounded = richardson_lucy(picture, best + 1, padding=RADIUS)

print(f"the picture:                  {psnr(picture):.2f} dB")
print(f"sky beyond the frame:         {quality[best]:.2f} dB after {best + 1} iterations")
print(f"sky that ends at the frame:   {psnr(bounded):.2f} dB")


def stretched(image):
    """The brightness as a screen shows it."""
    return (framed(image) / PHOTONS).clip(0, 1) ** 0.7


show(
    {
        "the sky, inside the frame": stretched(sky),
        f"the picture, {psnr(picture):.1f} dB": stretched(picture),
        f"deblurred, {quality[best]:.1f} dB": stretched(estimates[best]),
        f"with a sky that ends at the frame, {psnr(bounded):.1f} dB": stretched(bounded),
    },
    columns=2,
)
plt.show()

# %%
# The likelihood grows with each iteration, as in every expectation-maximisation [3]_. The
# distance from the true sky does not shrink for ever. At some point the iteration begins to fit the
# noise, and to stop early is the regularisation that everybody uses.

left, middle, right = plots(
    "image of a star",
    "log-likelihood of the picture, in nats a pixel",
    "PSNR of the estimate, in dB",
    xlabel="iteration",
    width_ratios=(1, 1.5, 1.5),
)
left.imshow(to_host(psf[0, 0, ::-1, ::-1]), cmap="magma", interpolation="nearest")
left.set_axis_off()
steps = range(1, ITERATIONS + 1)
middle.plot(steps, likelihood, color=BLUE)
right.plot(steps, quality, color=ORANGE)
right.axhline(psnr(picture), color=GREY, linewidth=1, linestyle="--")
right.text(ITERATIONS, psnr(picture) + 0.1, "the picture", fontsize=8, ha="right")
plt.show()

# %%
# .. [1] W. H. Richardson, `Bayesian-based iterative method of image restoration
#    <https://doi.org/10.1364/JOSA.62.000055>`__, Journal of the Optical Society of America 62,
#    1972.
# .. [2] L. B. Lucy, `An iterative technique for the rectification of observed distributions
#    <https://doi.org/10.1086/111605>`__, The Astronomical Journal 79, 1974.
# .. [3] L. A. Shepp and Y. Vardi, `Maximum likelihood reconstruction for emission tomography
#    <https://doi.org/10.1109/TMI.1982.4307558>`__, IEEE Transactions on Medical Imaging 1, 1982.
