r"""
Gabor filters and the borders of a texture
==========================================

Waves below a Gaussian, in some directions and wavelengths, are the usual description of a texture:
how strongly an image answers to each of these Gabor filters says which way its grain runs and how
coarse it is [1]_. The strength is a mean over the image, and near its border each filter asks for
pixels that nobody has. ``padding_mode`` says what is there instead.

This page measures three textures, compares the modes with the truth, and ends with the transposed
filters, whose wrapped borders make a tile without a seam.

*Data:* ``skimage.data.brick`` and ``gravel`` from CC0Textures, ``grass`` by LinoLafett, under the
licence CC0; they are part of scikit-image.
"""

import matplotlib.pyplot as plt
import numpy as np
import skimage.data

import cupyconv
from gallery import BLUE, GREEN, ORANGE, plots, show, to_host, xp

# %%
# A bank of filters
# -----------------
#
# Three wavelengths in eight directions. Each filter has a cosine and a sine, so that the sum of
# their squares hardly depends on where in a wave it stands. Even areas give nothing.

RADIUS = 14
WAVELENGTHS = (4, 8, 12)  # pixels
ANGLES = np.arange(8) * 180 / 8  # degrees, the direction in which a wave runs


def gabor(wavelength, angle):
    y, x = np.mgrid[-RADIUS : RADIUS + 1, -RADIUS : RADIUS + 1]
    bell = np.exp(-0.5 * (x**2 + y**2) / (wavelength / 2) ** 2)
    along = x * np.cos(np.radians(angle)) + y * np.sin(np.radians(angle))
    wave = bell * np.exp(2j * np.pi * along / wavelength)
    wave -= bell * wave.sum() / bell.sum()
    return np.stack([wave.real, wave.imag]) / np.linalg.norm(wave)


filters = np.array([gabor(length, angle) for length in WAVELENGTHS for angle in ANGLES])
bank = xp.asarray(filters.reshape(-1, 1, *filters.shape[2:]), dtype=xp.float32)

names = [f"{length} px, {angle:g}°" for length in WAVELENGTHS for angle in ANGLES]
show(dict(zip(names, filters[:, 0], strict=True)), columns=8, cmap="RdBu_r", vmin=-0.2, vmax=0.2)
plt.show()

# %%
# Three textures
# --------------
#
# The mean of a squared strength is the energy at a wavelength in a direction. With wrapped borders
# it does not change when an image is shifted around, as each pixel keeps its neighbours.

SIZE, START = 160, 128
CROP = slice(START, START + SIZE)
WIDE = slice(START - RADIUS, START + SIZE + RADIUS)  # all pixels that the filters ask for


def respond(images, **borders):
    """Squared strength of each filter at each pixel, (N, filters, H, W)."""
    parts = cupyconv.conv2d(images, bank, **borders)
    return (parts**2).reshape(len(images), len(filters), 2, SIZE, SIZE).sum(axis=2)


def energy(responses):
    """Mean of the squared strength, for each texture, wavelength and direction."""
    return responses.mean(axis=(2, 3)).reshape(-1, len(WAVELENGTHS), len(ANGLES))


NAMES = ("brick", "grass", "gravel")
photographs = np.stack([getattr(skimage.data, name)() for name in NAMES])[:, None]
photographs = xp.asarray(photographs, dtype=xp.float32)
textures = photographs[..., CROP, CROP]
mean, deviation = (f(axis=(2, 3), keepdims=True) for f in (textures.mean, textures.std))
photographs, textures = ((images - mean) / deviation for images in (photographs, textures))

wrapped = respond(textures, padding="same", padding_mode="wrap")
energies = energy(wrapped)
shifted = respond(xp.roll(textures, (100, 31), (2, 3)), padding="same", padding_mode="wrap")
change = energy(shifted) / energies - 1
print(f"largest change of an energy of a shifted texture: {float(abs(change).max()):.0e}")

show(dict(zip(NAMES, textures[:, 0], strict=True)))
axes = plots(*NAMES, xlabel="direction of the wave, degrees", sharey=True)
for ax, values in zip(axes, to_host(energies), strict=True):
    for length, line, colour in zip(WAVELENGTHS, values, (BLUE, ORANGE, GREEN), strict=True):
        ax.plot(ANGLES, line, "o-", color=colour, label=f"{length} px")
axes[0].legend(fontsize=8, frameon=False)
plt.show()

# %%
# Joints between bricks run in two directions; grass and gravel have no direction of their own.
#
# What lies outside
# -----------------
#
# The photographs are larger than the squares, so the truth near the border is known, too.

MODES = (None, "reflect", "symmetric", "edge", "wrap")
frame = xp.ones((SIZE, SIZE), dtype=bool)
frame[RADIUS:-RADIUS, RADIUS:-RADIUS] = False

truth = respond(photographs[..., WIDE, WIDE])
responses = {mode: respond(textures, padding="same", padding_mode=mode) for mode in MODES}
errors = {
    mode: abs(seen - truth)[..., frame].mean((1, 2)) / truth[..., frame].mean((1, 2))
    for mode, seen in responses.items()
}
print("relative error of", *(f"{name:>7}" for name in NAMES))
for mode, values in errors.items():
    print(f"{mode or 'absent':17}", *(f"{float(value):7.2f}" for value in values))

panels = {"truth": truth, "edge": responses["edge"], "wrap": responses["wrap"]}
show({name: xp.sqrt(panel[0].sum(axis=0)) for name, panel in panels.items()}, vmin=0, vmax=36)
plt.show()

# %%
# The panels show the strength of all filters together on brick. To repeat the last pixel comes
# closest here, and to wrap is the worst guess, as a photograph does not go on at its other side. It
# is right for what does go around: angles, longitudes, boxes of a simulation, and tiles.

# %%
# A tile without a seam
# ---------------------
#
# The transposed convolution puts a copy of a filter at each pixel of its input. Noise, as strong in
# each filter as brick is, becomes noise with the grain of brick [2]_. With ``padding_mode="wrap"``
# what reaches out at one side comes in at the other, so copies of the result fit together.

rng = np.random.default_rng(0)
noise = xp.asarray(rng.standard_normal((len(filters), 2, 96, 96)), dtype=xp.float32)
strength = xp.sqrt(energies[0]).reshape(-1, 1, 1, 1)  # of brick
sources = (strength * noise).reshape(-1, 96, 96)
tile = cupyconv.conv_transpose2d(sources, bank, padding="same", padding_mode="wrap")
cut = cupyconv.conv_transpose2d(sources, bank, padding="same")

tiles = {"four tiles, wrapped": xp.tile(tile[0], (2, 2)), "cut off": xp.tile(cut[0], (2, 2))}
show(tiles, vmin=-35, vmax=35)
plt.show()

# %%
# .. [1] B. S. Manjunath and W. Y. Ma, `Texture features for browsing and retrieval of image data
#    <https://doi.org/10.1109/34.531803>`__, IEEE PAMI 18, 1996.
# .. [2] A. Lagae, S. Lefebvre, G. Drettakis and P. Dutré, `Procedural noise using sparse Gabor
#    convolution <https://doi.org/10.1145/1531326.1531360>`__, ACM TOG 28, 2009.
