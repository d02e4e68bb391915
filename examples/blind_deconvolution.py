r"""
Blind deconvolution of a burst
==============================

A telescope on the ground that takes short exposures freezes the turbulence of the air: each frame
is blurred by a point spread function of its own, and nobody knows any of them. The sky is the same
in all frames. *Blind deconvolution* looks for both at once, the sky *x* and the kernel *k* of each
frame *y*:

.. code-block:: none

   y[f] ≈ k[f] * x        x ≥ 0,  k[f] ≥ 0,  Σ k[f] = 1

The model is linear in *x* and linear in *k*, so it takes two gradients:
:func:`cupyconv.grad.conv2d_input` for the sky and :func:`cupyconv.grad.conv2d_weight` for the
kernels. Both are exact up to the border of the frames. The iteration takes a step along the one,
then along the other [1]_ [2]_.

*Data:* ``skimage.data.hubble_deep_field``, galaxies by NASA, in the public domain; it is part of
scikit-image.
"""

# sphinx_gallery_thumbnail_number = 2

import matplotlib.pyplot as plt
import numpy as np
import skimage.data

import cupyconv
from gallery import BLUE, GREEN, GREY, ORANGE, plots, show, to_host, xp

# %%
# A burst of short exposures
# --------------------------
#
# Turbulence bends the wave that enters the telescope. The phase follows the power law of
# Kolmogorov's turbulence: the larger the scale, the more power. Its mean does nothing and its tilt
# only shifts the picture, so both are taken out. The point spread function is the power spectrum of
# the wave within the aperture, a cloud of speckles.
#
# One sky and four kernels give four frames: a convolution from one channel to four. The library
# does not flip kernels, so the image of a star is the weight turned by 180°.

FRAMES = 4
FRAME = 72  # pixels of the detector along an axis
RADIUS = 5  # of a kernel
PHOTONS = 2000  # of a white pixel
rng = np.random.default_rng(0)


def speckles(grid=64, aperture=16, bend=1.3):
    """A point spread function: ``bend`` is the phase's root mean square, in radians."""
    steps = grid * np.fft.fftfreq(grid)
    distance = np.hypot(steps[:, None], steps)
    inside = distance < aperture
    power_law = np.maximum(distance, 1) ** (-11 / 6)
    phase = np.fft.ifft2(power_law * np.fft.fft2(rng.normal(size=(grid, grid)))).real[inside]
    plane = np.stack([np.ones(phase.size), *(steps[index] for index in np.nonzero(inside))], axis=1)
    phase -= plane @ np.linalg.lstsq(plane, phase)[0]
    wave = np.zeros((grid, grid), complex)
    wave[inside] = np.exp(1j * bend / phase.std() * phase)
    middle = slice(grid // 2 - RADIUS, grid // 2 + RADIUS + 1)
    kernel = abs(np.fft.fftshift(np.fft.fft2(wave))[middle, middle]) ** 2
    return kernel / kernel.sum()


field = skimage.data.hubble_deep_field().mean(axis=2) / 255
TOP, LEFT = 105, 405
SIZE = FRAME + 2 * RADIUS  # light from beyond the detector's edge falls on it, too
sky = xp.asarray(PHOTONS * field[None, TOP : TOP + SIZE, LEFT : LEFT + SIZE])  # (1, 82, 82)
kernels = xp.asarray(np.array([[speckles()] for _ in range(FRAMES)]))  # (4, 1, 11, 11)
exposures = to_host(cupyconv.conv2d(sky, kernels))  # (4, 72, 72)
frames = xp.asarray(rng.poisson(exposures).astype(float))


def stretched(image):
    """The brightness as a screen shows it."""
    return (image / PHOTONS).clip(0, 1) ** 0.7


show({f"frame {i}": stretched(frame) for i, frame in enumerate(frames, 1)}, vmin=0, vmax=1)
plt.show()

# %%
# Two gradients
# -------------
#
# The loss is the negative logarithm of the likelihood of the photons' counts, up to a constant. Its
# gradient with respect to what is expected of the frames goes back through the convolution, either
# to the sky or to the kernels.


def loss(sky, kernels, frames):
    expected = cupyconv.conv2d(sky, kernels)
    return float((expected - frames * xp.log(expected)).sum())


def sky_gradient(sky, kernels, frames):
    grad_frames = 1 - frames / cupyconv.conv2d(sky, kernels)
    return cupyconv.grad.conv2d_input(sky.shape, kernels, grad_frames)


def kernel_gradient(sky, kernels, frames):
    grad_frames = 1 - frames / cupyconv.conv2d(sky, kernels)
    return cupyconv.grad.conv2d_weight(sky, kernels.shape, grad_frames)


# %%
# Differences of the loss between two near points confirm them:


def compare(name, gradient, change_sky, change_kernels):
    ahead = loss(sky + change_sky, kernels + change_kernels, frames)
    behind = loss(sky - change_sky, kernels - change_kernels, frames)
    slope = float((gradient * (change_sky + change_kernels)).sum())
    print(f"{name}: the loss changes by {(ahead - behind) / 2:.6f}, by the gradient {slope:.6f}")


noise = xp.asarray(rng.uniform(-1e-3, 1e-3, sky.shape))
compare("sky", sky_gradient(sky, kernels, frames), noise * sky, 0)
noise = xp.asarray(rng.uniform(-1e-3, 1e-3, kernels.shape))
compare("kernels", kernel_gradient(sky, kernels, frames), 0, noise * kernels)

# %%
# Steps in turn
# -------------
#
# A step along a gradient needs a length. Lucy's [3]_ has one for each element: the element's value
# over its share of the light, that is, over what the frames gain in sum when the element gains one.
# The shares are gradients of the same two kinds. With these lengths no element becomes negative,
# and the loss falls.
#
# A bright sky with faint kernels makes the same frames as a faint sky with bright kernels, so the
# kernels are divided by their sum. They begin as one wide Gaussian, and take two steps for each
# step of the sky.


def step(values, gradient, share):
    return xp.maximum(values - values / share * gradient, 1e-9)


def deconvolve(frames, iterations, known=None):
    """Yield the estimates of the sky and of the kernels, unless these are known."""
    light = xp.ones_like(frames)
    sky = xp.full((1, SIZE, SIZE), float(frames.mean()))
    kernels = wide_gaussians(len(frames)) if known is None else known
    for _ in range(iterations):
        share = cupyconv.grad.conv2d_input(sky.shape, kernels, light)
        sky = step(sky, sky_gradient(sky, kernels, frames), share)
        if known is None:
            share = cupyconv.grad.conv2d_weight(sky, kernels.shape, light)
            for _ in range(2):
                kernels = step(kernels, kernel_gradient(sky, kernels, frames), share)
                kernels = kernels / kernels.sum(axis=(1, 2, 3), keepdims=True)
        yield sky, kernels


def wide_gaussians(count, sigma=2.5):
    profile = np.exp(-0.5 * (np.arange(-RADIUS, RADIUS + 1) / sigma) ** 2)
    kernel = np.outer(profile, profile) / profile.sum() ** 2
    return xp.asarray(np.tile(kernel, (count, 1, 1, 1)))


ITERATIONS = 80
BLIND = "burst, blind", "one frame, blind"
runs = {
    BLIND[0]: list(deconvolve(frames, ITERATIONS)),
    BLIND[1]: list(deconvolve(frames[:1], ITERATIONS)),
    "burst, kernels known": list(deconvolve(frames, ITERATIONS, kernels)),
}

# %%
# What comes out
# --------------
#
# Nothing in the frames says where the sky is: it may move one way if all kernels move the other
# way. So an estimate is compared with the sky at the best of the shifts by up to two pixels. The
# kernels' error is the norm of the difference over the norm of the kernels.


def framed(sky, down=0, right=0):
    """The part that the frames show."""
    top, left = RADIUS + down, RADIUS + right
    return sky[:, top : top + FRAME, left : left + FRAME]


def psnr(image):
    return float(-10 * xp.log10(((image - framed(sky)) ** 2).mean() / PHOTONS**2))


SHIFTS = [(down, right) for down in range(-2, 3) for right in range(-2, 3)]


def aligned(estimate):
    return max((framed(estimate, *shift) for shift in SHIFTS), key=psnr)


def kernel_error(found):
    true = kernels[: len(found)]
    return float(((found - true) ** 2).sum() / (true**2).sum()) ** 0.5


quality = {name: [psnr(aligned(x)) for x, _ in estimates] for name, estimates in runs.items()}
print(f"{'one frame':25} {psnr(frames[:1]):.1f} dB")
print(f"{'mean of the frames':25} {psnr(frames.mean(axis=0)):.1f} dB")
for name, values in quality.items():
    best = int(np.argmax(values))
    error = kernel_error(runs[name][best][1])
    print(f"{name:25} {values[best]:.1f} dB after {best + 1}, error of the kernels {error:.2f}")

mean = frames.mean(axis=0)
panels = {
    "the sky, inside the frame": framed(sky)[0],
    f"one frame, {psnr(frames[:1]):.1f} dB": frames[0],
    f"mean of the frames, {psnr(mean):.1f} dB": mean,
}
for name, values in quality.items():
    estimate, _ = runs[name][int(np.argmax(values))]
    panels[f"{name}, {max(values):.1f} dB"] = aligned(estimate)[0]
show({name: stretched(image) for name, image in panels.items()}, columns=3, vmin=0, vmax=1)
plt.show()

# %%
# One frame does not say which part of the blur belongs to the sky. Alone it ends in a pair that
# explains the frame better than the true sky and kernel do, and its sky is a poor one. Four frames
# share one sky, so what differs between them belongs to the kernels. That closes two thirds of the
# gap between a frame and what the iteration finds when it knows the kernels.
#
# The kernels are slower to come: their speckles lie in the right places, but are far too smooth
# after these iterations. And the curves are drawn by somebody who has the true sky. Without it, one
# stops when the loss falls slowly, before the noise is fitted.

rows = {"the images of a star": kernels, "as the burst gives them": runs["burst, blind"][-1][1]}
tiles = {}
for name, found in rows.items():
    stars = to_host(found[:, 0, ::-1, ::-1])
    tiles[name] = np.hstack(np.pad(stars, ((0, 0), (0, 0), (0, 1)), constant_values=np.nan))
show(tiles, cmap="magma", vmin=0, vmax=float(kernels.max()))
plt.show()

left, right = plots(
    "loss above that of the true sky and kernels, in nats a pixel",
    "PSNR of the sky, in dB",
    xlabel="iteration",
)


def excess(sky_found, kernels_found):
    count = len(kernels_found)
    true = loss(sky, kernels[:count], frames[:count])
    return (loss(sky_found, kernels_found, frames[:count]) - true) / frames[:count].size


losses = {name: [excess(*pair) for pair in runs[name]] for name in BLIND}
steps = range(1, ITERATIONS + 1)
for (name, values), colour in zip(quality.items(), (BLUE, ORANGE, GREEN), strict=True):
    right.plot(steps, values, color=colour, label=name)
    if name in losses:
        left.plot(steps, losses[name], color=colour)
left.set_ylim(-0.1, 1)
left.axhline(0, color=GREY, linewidth=1, linestyle="--")
right.axhline(psnr(frames[:1]), color=GREY, linewidth=1, linestyle="--")
right.text(ITERATIONS, psnr(frames[:1]) - 0.2, "one frame", fontsize=8, ha="right", va="top")
right.legend(fontsize=8, frameon=False, ncols=2, loc="upper left", bbox_to_anchor=(0.1, 0.2))
plt.show()

# %%
# .. [1] G. R. Ayers and J. C. Dainty, `Iterative blind deconvolution method and its applications
#    <https://doi.org/10.1364/OL.13.000547>`__, Optics Letters 13, 1988.
# .. [2] T. J. Schulz, `Multiframe blind deconvolution of astronomical images
#    <https://doi.org/10.1364/JOSAA.10.001064>`__, Journal of the Optical Society of America A 10,
#    1993.
# .. [3] L. B. Lucy, `An iterative technique for the rectification of observed distributions
#    <https://doi.org/10.1086/111605>`__, The Astronomical Journal 79, 1974.
