r"""
Sparse coding, layer by layer
=============================

An image is often the sum of few patterns, put in few places. *Convolutional sparse coding* looks
for them: given the atoms *d*, small kernels, it finds a map *z* for each, nearly all zero, that
minimise

.. code-block:: none

   ½ ‖m · (D z - y)‖² + λ Σ |z|        D z = Σ d * z, the sum over the atoms

*D* is a transposed convolution from many channels to one, and its transpose is the convolution with
the same weight [1]_ [2]_. The mask *m* marks the pixels of the picture *y* that are known. Where it
is zero, *D z* fills the hole with what the patterns around it suggest.

The problem is solved by steps of one form: a convolution each way and a threshold. Unrolled, they
are the layers of a network [3]_.

*Data:* ``skimage.data.camera``, a photograph by Lav Varshney, CC0; it is part of scikit-image.
"""

# sphinx_gallery_thumbnail_number = 2

import itertools

import matplotlib.pyplot as plt
import numpy as np
import scipy.fft
import skimage.data

import cupyconv
from gallery import BLUE, ORANGE, plots, show, to_host, xp

# %%
# A dictionary
# ------------
#
# The atoms are the 64 patterns of the discrete cosine transform of 8 × 8 pixels, the ones of JPEG.
# They are an orthonormal basis of such blocks, so the squares of a block's coefficients add up to
# the squares of its pixels. A convolution of stride 4 codes overlapping blocks, and with padding 4
# each pixel is in four of them, at the border as well: a kernel whose size is a multiple of the
# stride covers evenly. With atoms divided by 2 the squares of all coefficients then add up to those
# of the picture: *D Dᵀ* is the identity. The norm of *D* is one, and steps of length one are safe.

BLOCK, STRIDE = 8, 4
basis = scipy.fft.idct(np.eye(BLOCK), norm="ortho", axis=1)
atoms = xp.asarray(np.einsum("ik,jl->ijkl", basis, basis), dtype=xp.float32)
atoms = atoms.reshape(BLOCK**2, 1, BLOCK, BLOCK) * (STRIDE / BLOCK)


def analyse(image):
    """The transpose of *D*: an image of shape (1, H, W) to (64, H/4 + 1, W/4 + 1)."""
    return cupyconv.conv2d(image, atoms, stride=STRIDE, padding=BLOCK - STRIDE)


def synthesise(code):
    """*D*: the sum of the atoms, each put where its map is not zero."""
    return cupyconv.conv_transpose2d(code, atoms, stride=STRIDE, padding=BLOCK - STRIDE)


photograph = xp.asarray(skimage.data.camera()[None, 48:208, 168:328] / 255, dtype=xp.float32)
error = float(abs(synthesise(analyse(photograph)) - photograph).max())
print(f"largest error of D Dᵀ y: {error:.1e}")

tiles = np.pad(to_host(atoms[:, 0]), ((0, 0), (1, 1), (1, 1)), constant_values=np.nan)
tiles /= np.nanmax(abs(tiles), axis=(1, 2), keepdims=True)
rows = tiles.reshape(4, 16, BLOCK + 2, BLOCK + 2).swapaxes(1, 2).reshape(4 * (BLOCK + 2), -1)
show({"the 64 atoms": rows}, vmin=-1.2, vmax=1.2)
plt.show()

# %%
# The picture and its holes
# -------------------------
#
# Half of the pixels are lost, and the others have some noise.

rng = np.random.default_rng(0)
NOISE = 0.01
known = xp.asarray(rng.random(photograph.shape) < 0.5)
noise = xp.asarray(rng.normal(0, NOISE, photograph.shape), dtype=xp.float32)
picture = xp.where(known, photograph + noise, 0)

# %%
# A layer
# -------
#
# A step of ISTA [4]_ goes down the gradient of the squared error, then pulls each coefficient
# towards zero. The flat atom is spared, since brightness is not sparse. FISTA [5]_ takes the same
# step from a point a little beyond the last one.

THRESHOLD = xp.full((BLOCK**2, 1, 1), 0.02, dtype=xp.float32)
THRESHOLD[0] = 0


def shrink(code):
    return xp.sign(code) * xp.maximum(abs(code) - THRESHOLD, 0)


def layer(code):
    return shrink(code - analyse(xp.where(known, synthesise(code) - picture, 0)))


def objective(code, image):
    """Of a code and the image that it stands for."""
    residual = xp.where(known, image - picture, 0)
    return float(0.5 * (residual**2).sum() + (THRESHOLD * abs(code)).sum())


def ista(code):
    """Yield the outputs of the layers."""
    while True:
        code = layer(code)
        yield code


def fista(code):
    ahead, t = code, 1.0
    while True:
        previous, code = code, layer(ahead)
        yield code
        t, before = (1 + np.sqrt(1 + 4 * t * t)) / 2, t
        ahead = code + (code - previous) * np.float32((before - 1) / t)


# %%
# How deep
# --------
#
# Each layer passes on a little of what its neighbours know, so the holes fill from their edges; the
# brightness comes first, then the edges. With depth the picture gets closer to the photograph,
# which no layer has seen.


def psnr(image):
    return float(-10 * xp.log10(((image - photograph) ** 2).mean()))


LAYERS = 40
start = xp.zeros_like(analyse(photograph))
codes = {
    method.__name__.upper(): list(itertools.islice(method(start), LAYERS))
    for method in (ista, fista)
}
images = {name: [synthesise(code) for code in outputs] for name, outputs in codes.items()}
objectives = {name: list(map(objective, codes[name], images[name])) for name in codes}
quality = {name: list(map(psnr, images[name])) for name in codes}
code = codes["FISTA"][-1]
print(f"coefficients that are not zero: {100 * float((code != 0).mean()):.1f} %")

panels = {"half of the pixels, with noise": picture[0]}
for depth in (5, 15, LAYERS):
    name = f"{depth} layers, {quality['FISTA'][depth - 1]:.1f} dB"
    panels[name] = images["FISTA"][depth - 1][0]
panels["the photograph"] = photograph[0]
panels["where one of the atoms is"] = 1 - abs(code[9]) / abs(code[9]).max()
show(panels, columns=3, vmin=0, vmax=1)
plt.show()

# %%
# The objective falls with each layer of ISTA. Its distance from the least one shrinks as one over
# the number of layers, and as one over the square of that for FISTA, which does not promise that
# each single layer helps: here it needs fewer than half of the layers. A network that *learns* the
# weights and thresholds of its layers needs fewer still. What it runs is what runs here.

left, right = plots("objective", "PSNR of the image, in dB", xlabel="layers")
for name, colour in (("ISTA", BLUE), ("FISTA", ORANGE)):
    left.plot(range(1, LAYERS + 1), objectives[name], color=colour, label=name)
    right.plot(range(1, LAYERS + 1), quality[name], color=colour, label=name)
left.legend(fontsize=8, frameon=False)
right.legend(fontsize=8, frameon=False)
plt.show()

# %%
# .. [1] M. D. Zeiler, D. Krishnan, G. W. Taylor and R. Fergus, `Deconvolutional networks
#    <https://doi.org/10.1109/CVPR.2010.5539957>`__, CVPR, 2010.
# .. [2] B. Wohlberg, `Efficient algorithms for convolutional sparse representations
#    <https://doi.org/10.1109/TIP.2015.2495260>`__, IEEE Transactions on Image Processing 25, 2016.
# .. [3] K. Gregor and Y. LeCun, Learning fast approximations of sparse coding, ICML, 2010.
# .. [4] I. Daubechies, M. Defrise and C. De Mol, `An iterative thresholding algorithm for linear
#    inverse problems with a sparsity constraint <https://doi.org/10.1002/cpa.20042>`__,
#    Communications on Pure and Applied Mathematics 57, 2004.
# .. [5] A. Beck and M. Teboulle, `A fast iterative shrinkage-thresholding algorithm for linear
#    inverse problems <https://doi.org/10.1137/080716542>`__, SIAM Journal on Imaging Sciences 2,
#    2009.
