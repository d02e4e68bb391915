r"""
Coming from torch.nn.functional and cupy.cudnn
==============================================

Two kinds of scripts have their convolutions elsewhere: some pass arrays to PyTorch and back, and
others called ``cupy.cudnn``, which CuPy 14 has removed together with all of its support for
cuDNN [1]_. This page moves one of each, on a filter that finds the blood vessels of an eye, and
lists what differs. The code *before* is text. The code *after* has made the pictures.

*Data:* ``skimage.data.retina``, a photograph by Mikael Häggström, CC0; it is part of scikit-image.
"""

# sphinx_gallery_thumbnail_number = 2

import matplotlib.pyplot as plt
import numpy as np
import skimage.data

import cupyconv
from gallery import show, to_host, xp

photograph = skimage.data.retina()[420:932, 160:672]

# %%
# The filters
# -----------
#
# A vessel is darker than what surrounds it, straight over a short stretch, and its profile is close
# to a Gaussian. A filter of that shape and of mean zero is turned into twelve directions, and the
# strongest answer counts [2]_.

DIRECTIONS = 12


def matched_filters(sigma=1.8, length=9, size=15):
    y, x = np.mgrid[:size, :size] - size // 2
    filters = np.empty((DIRECTIONS, 1, size, size), np.float32)
    for filter, angle in zip(filters, np.pi * np.arange(DIRECTIONS) / DIRECTIONS, strict=True):
        across = x * np.cos(angle) + y * np.sin(angle)
        along = y * np.cos(angle) - x * np.sin(angle)
        support = (abs(along) <= length / 2) & (abs(across) <= 3 * sigma)
        profile = -np.exp(-0.5 * (across / sigma) ** 2)
        filter[0] = support * (profile - profile[support].mean())
    return filters


filters = matched_filters()
mean = np.full((1, 1, 2, 2), 1 / 4, np.float32)
tent = np.outer([1, 3, 3, 1], [1, 3, 3, 1]).astype(np.float32)[None, None] / 16
show({f"{180 * k // DIRECTIONS}°": filters[k, 0] for k in range(0, DIRECTIONS, 2)}, cmap="gray")
plt.show()

# %%
# From torch.nn.functional
# ------------------------
#
# Before:
#
# .. code-block:: python
#
#    import torch
#    import torch.nn.functional as F
#
#    torch.backends.cudnn.allow_tf32 = False
#
#    def vessels(green):
#        half = F.conv2d(green, mean, stride=2)
#        answers = F.conv2d(half, filters, padding=7)
#        strongest = answers.amax(dim=1, keepdim=True)
#        return F.conv_transpose2d(strongest, tent, None, 2, 1)
#
#    mean, filters, tent = (torch.from_numpy(w).cuda() for w in (mean, filters, tent))
#    green = torch.from_numpy(photograph[None, None, :, :, 1] / np.float32(255)).cuda()
#    found = vessels(green).cpu().numpy()
#
# After: the functions have the same names and the same order of arguments.

mean, filters, tent = (xp.asarray(w) for w in (mean, filters, tent))
green = xp.asarray(photograph[None, None, :, :, 1] / np.float32(255))


def vessels(green):
    half = cupyconv.conv2d(green, mean, stride=2)
    answers = cupyconv.conv2d(half, filters, padding=7)
    strongest = answers.max(axis=1, keepdims=True)
    return cupyconv.conv_transpose2d(strongest, tent, None, 2, 1)


found = vessels(green)
show(
    {
        "the photograph": photograph.transpose(2, 0, 1) / 255,
        "its green channel": to_host(green[0, 0]),
        "vessels": -found[0, 0].clip(0, 0.9),
    }
)
plt.show()

# %%
# What differs:
#
# .. list-table::
#    :header-rows: 1
#    :widths: 18 41 41
#
#    * -
#      - torch.nn.functional
#      - cupyconv
#    * - Arrays
#      - tensors, with gradients
#      - CuPy or NumPy arrays. ``cupy.from_dlpack(tensor)`` shares a tensor's memory
#    * - Gradients
#      - ``loss.backward()``
#      - one call each, in ``cupyconv.grad``
#    * - Precision
#      - float32 convolutions use TF32 on GPUs that have it, unless
#        ``torch.backends.cudnn.allow_tf32`` is false, for the process
#      - float32 accuracy, unless ``precision="tf32"`` is given, or for a block
#        ``with cupyconv.precision("tf32"):``
#    * - Same bits again
#      - ``torch.backends.cudnn.deterministic = True``, ``benchmark = False``
#      - always; there is nothing to set and nothing that measures itself
#    * - dtypes
#      - input and weight have the same one; on GPUs, floating and complex ones
#      - any that have a common one by NumPy's rules, integers included
#    * - Channels
#      - ``memory_format=torch.channels_last`` is a property of the tensor
#      - any strides: a view ``x.transpose(0, 3, 1, 2)`` of channels-last data works, with no copy
#    * - ``padding``
#      - the same on both sides; ``"same"`` with a stride of 1, and not for transposed convolutions
#      - also a pair for each axis; ``"same"`` with any stride, in both directions
#    * - ``output_padding``
#      - smaller than the stride or the dilation
#      - the same rule, and the same result
#    * - ``batch_norm``
#      - ``(input, running_mean, running_var, weight, bias, training)``
#      - ``(input, mean, var, weight, bias)``; without ``mean`` and ``var`` it takes the batch's own
#    * - ``max_pool2d``
#      - may return indices
#      - values only

# %%
# Channels that come last, as in the photograph, need a view and no copy. The filter for each colour
# is then a depthwise convolution.

batch = xp.asarray(photograph / np.float32(255))[None]  # (1, H, W, 3), as from a camera
view = batch.transpose(0, 3, 1, 2)
halves = cupyconv.depthwise_conv2d(view, xp.tile(mean, (3, 1, 1, 1)), stride=2)
print(view.flags.c_contiguous, halves.shape)

# %%
# From cupy.cudnn
# ---------------
#
# ``cupy.cudnn.convolution_forward`` wrote into an array of the right shape, which the caller had to
# work out; a transposed convolution was ``convolution_backward_data``, with the weight in front.
# Both took C-contiguous arrays, tuples for each axis, and all arguments each time.
#
# Before, with CuPy 13 or earlier:
#
# .. code-block:: python
#
#    import cupy
#    import cupy.cudnn
#
#    def out_size(size, kernel, stride, pad):
#        return (size + 2 * pad - kernel) // stride + 1
#
#    h, w = (out_size(n, 2, 2, 0) for n in green.shape[2:])
#    half = cupy.empty((1, 1, h, w), "float32")
#    cupy.cudnn.convolution_forward(
#        green, mean, None, half, (0, 0), (2, 2), (1, 1), 1,
#        auto_tune=True, tensor_core="auto",
#    )
#    answers = cupy.empty((1, 12, h, w), "float32")
#    cupy.cudnn.convolution_forward(
#        half, filters, None, answers, (7, 7), (1, 1), (1, 1), 1,
#        auto_tune=True, tensor_core="auto",
#    )
#    strongest = answers.max(axis=1, keepdims=True)
#    found = cupy.empty_like(green)
#    cupy.cudnn.convolution_backward_data(
#        tent, strongest, None, found, (1, 1), (2, 2), (1, 1), 1,
#        deterministic=True, auto_tune=True, tensor_core="auto",
#    )
#
# After: as above. Who wants to reuse an array gives it as ``out=``, and its shape is checked.

again = xp.empty_like(green)
half = cupyconv.conv2d(green, mean, None, (2, 2), (0, 0), (1, 1), 1)
answers = cupyconv.conv2d(half, filters, None, (1, 1), (7, 7), (1, 1), 1)
cupyconv.conv_transpose2d(answers.max(axis=1, keepdims=True), tent, stride=2, padding=1, out=again)
print("the same bits:", bool((again == found).all()))

# %%
# What differs:
#
# .. list-table::
#    :header-rows: 1
#    :widths: 18 41 41
#
#    * -
#      - cupy.cudnn
#      - cupyconv
#    * - Arguments
#      - ``(x, W, b, y, pad, stride, dilation, groups)``
#      - ``(input, weight, bias, stride, padding, dilation, groups)``: *stride comes first*
#    * - Transposed
#      - ``convolution_backward_data(W, x, b, y, ...)``; the shape of ``y`` stood for
#        ``output_padding``
#      - ``conv_transpose2d(input, weight, ...)``, with the shape from ``output_padding``
#    * - Result
#      - written to ``y``, returns nothing
#      - returned; written to ``out`` where that is given
#    * - Layout
#      - C-contiguous
#      - any strides
#    * - dtypes
#      - float16, float32, float64
#      - also bfloat16, complex numbers and integers
#    * - Speed
#      - ``auto_tune``, ``tensor_core``, a limit for workspaces
#      - no settings but ``precision``
#    * - Installation
#      - the cuDNN library beside CuPy
#      - kernels that are compiled by CuPy at the first call and kept on disk

# %%
# .. [1] CuPy's `upgrade guide <https://docs.cupy.dev/en/latest/upgrade.html>`__, CuPy v14.
# .. [2] S. Chaudhuri, S. Chatterjee, N. Katz, M. Nelson and M. Goldbaum, `Detection of blood
#    vessels in retinal images using two-dimensional matched filters
#    <https://doi.org/10.1109/42.34715>`__, IEEE Transactions on Medical Imaging 8, 1989.
