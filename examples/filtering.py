r"""
A filter of its own for each channel
====================================

The channels of a scientific image are measurements of different things: stains, wavelengths,
moments. To filter them apart is a *depthwise* convolution, with as many groups as channels. Its
weight has the shape ``(multiplier * C, 1, *kernel)``, and each channel gets ``multiplier`` filters
of its own.

First, the stains of a microscope slide go through two Gaussians each, whose difference finds nuclei
and cell borders. Then two volumes of a functional MRI series are smoothed inside the brain.

*Data:* ``skimage.data.immunohistochemistry``, colonic glands, from the Center for Microscopy and
Molecular Imaging, with no known copyright restrictions; part of scikit-image. ``example4d.nii.gz``,
two volumes of a functional MRI series; part of NiBabel's test data, under its MIT licence.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import nibabel
import numpy as np
import skimage.color
import skimage.data

import cupyconv
from gallery import show, to_host, xp

# %%
# The stains of a slide
# ---------------------
#
# Haematoxylin stains nuclei blue, and the brown DAB marks a protein of the glands. Light passes
# through both, so their densities add up in the logarithm of the colour, and a matrix separates
# them [1]_. That gives an image with one channel for each stain. A pixel that is all but black in a
# colour has no density that could be trusted, so the densest hundredth is clipped.

photograph = skimage.data.immunohistochemistry()[200:456, 200:456]
stains = skimage.color.rgb2hed(photograph)[..., [0, 2]].transpose(2, 0, 1)
densest = np.quantile(stains, 0.99, axis=(1, 2), keepdims=True)
stains = xp.asarray(np.minimum(stains / densest, 1))

# %%
# A difference of two Gaussians answers to blobs of about the smaller one's width and to nothing
# that is even: it is close to the Laplacian of a Gaussian when the widths have the ratio 1.6 [2]_.
# Nuclei are wider than cell borders, so each stain has its own pair: four filters in two groups.
#
# A Gaussian is separable. The columns are filtered first, which makes two channels of each one, and
# then the rows, one filter for each of the four: 50 products for each output in place of 625.
#
# Beyond the border there is no tissue, which is not the same as tissue without stain. Padding
# leaves the products out, and the same convolution of an image of ones says how much weight is
# left; the ratio is a weighted mean of the pixels that exist [3]_.


def gaussian(sigma, radius):
    bell = xp.exp(-0.5 * (xp.arange(-radius, radius + 1) / sigma) ** 2)
    return bell / bell.sum()


NARROW = np.array([3.0, 1.5])  # pixels, one for each stain
sigmas = np.stack([NARROW, 1.6 * NARROW], axis=1).ravel()  # a channel has two neighbouring ones
bells = xp.stack([gaussian(sigma, 12) for sigma in sigmas])[:, None]


def blur(image):
    columns = cupyconv.depthwise_conv2d(image, bells[..., None], padding="same")
    return cupyconv.depthwise_conv2d(columns, bells[..., None, :], padding="same")


blurred = blur(stains) / blur(xp.ones_like(stains))
differences = blurred[0::2] - blurred[1::2]

# %%
# Nuclei are local maxima of their stain's difference: pixels that are the largest of their
# neighbourhood, and a max pool with stride 1 says what the largest is. The threshold was chosen by
# eye.

nuclei, borders = differences
largest = cupyconv.max_pool2d(nuclei[None], kernel_size=11, stride=1, padding=5)[0]
rows, columns = map(to_host, xp.nonzero((nuclei == largest) & (nuclei > 0.06)))
print(f"{rows.size} maxima")

axes = show(
    {
        "the slide": photograph.transpose(2, 0, 1) / 255,
        "haematoxylin": stains[0],
        "DAB": stains[1],
        f"{rows.size} maxima, marked in the slide": photograph.transpose(2, 0, 1) / 255,
        "haematoxylin, σ = 3 less σ = 4.8": nuclei,
        "DAB, σ = 1.5 less σ = 2.4": borders,
    },
    columns=3,
    cmap="magma",
    vmin=0,
)
axes[1, 0].plot(columns, rows, "o", color="white", markeredgecolor="black", markersize=4)
plt.show()

# %%
# Volumes of a series
# -------------------
#
# In functional MRI the volumes of a series are smoothed before they are compared, commonly by a
# Gaussian whose full width at half maximum is two or three voxels: the signal extends over
# millimetres and the noise does not. The volumes are the channels here. Voxels are 2 × 2 × 2.2 mm,
# so a width in millimetres is a σ for each axis, and a separable filter is one
# :func:`~cupyconv.conv3d` for each.

folder = Path(nibabel.__file__).parent / "tests" / "data"
series = nibabel.load(folder / "example4d.nii.gz")
volumes = xp.asarray(series.get_fdata(dtype=np.float32).transpose(3, 0, 1, 2))
voxel = np.array(series.header.get_zooms()[:3])
print("volumes:", volumes.shape, "voxel in mm:", voxel.round(2))

FWHM = 6.0  # mm
sigma = FWHM / np.sqrt(8 * np.log(2)) / voxel


def smooth(channels):
    """Gaussian of the width FWHM along each axis; all channels have the same filter."""
    count = len(channels)
    for axis in range(3):
        shape = [1, 1, 1]
        shape[axis] = -1
        bell = gaussian(sigma[axis], radius=6).astype(channels.dtype).reshape(shape)
        weight = xp.tile(bell, (count, 1, 1, 1, 1))
        channels = cupyconv.conv3d(channels, weight, padding="same", groups=count)
    return channels


# %%
# Outside the brain the volumes are zero: somebody has masked them. A plain filter mixes these zeros
# in and darkens the cortex. Again the ratio to the filtered mask is a mean of what exists.

inside = (volumes > 0).all(axis=0)
mask = inside.astype(volumes.dtype)[None]
plain = smooth(volumes)
masked = xp.where(inside, smooth(volumes * mask) / xp.where(inside, smooth(mask), 1), 0)

AXIAL = (slice(28, 100), slice(None, None, -1), 12)
ways = {"unfiltered": volumes, "smoothed": plain, "smoothed in the mask": masked}
show({name: v[0][AXIAL].T for name, v in ways.items()}, vmin=0, vmax=900)
plt.show()

# %%
# What differs between the two volumes is mostly noise. White noise would shrink by the norm of the
# kernel. That of a scan is not white, since heart and breath move neighbouring voxels together, and
# less of it goes away.

changes = {name: v[1] - v[0] for name, v in ways.items()}
noise = {name: float(change[inside].std()) for name, change in changes.items()}
for name, value in noise.items():
    print(f"standard deviation of the change, {name}: {value:.1f}")
norm = np.prod([float(xp.linalg.norm(gaussian(s, 6))) for s in sigma])
print(f"left of it: {noise['smoothed in the mask'] / noise['unfiltered']:.3f}")
print(f"left of white noise: {norm:.3f}")

panels = {f"change, {name}": change[AXIAL].T for name, change in changes.items()}
show(panels, cmap="RdBu_r", vmin=-40, vmax=40)
plt.show()

# %%
# .. [1] A. C. Ruifrok and D. A. Johnston, Quantification of histochemical staining by color
#    deconvolution, Analytical and Quantitative Cytology and Histology 23, 2001.
# .. [2] D. Marr and E. Hildreth, `Theory of edge detection
#    <https://doi.org/10.1098/rspb.1980.0020>`__, Proceedings of the Royal Society B 207, 1980.
# .. [3] H. Knutsson and C.-F. Westin, `Normalized and differential convolution
#    <https://doi.org/10.1109/CVPR.1993.341081>`__, CVPR, 1993.
