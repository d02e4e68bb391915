"""NumPy-style N-d convolutions for CuPy and NumPy arrays."""

__version__ = "0.1.0"

from . import grad as grad
from . import signal as signal
from ._config import show_config
from ._convolution import conv, conv1d, conv2d, conv3d, depthwise_conv2d
from ._explain import explain
from ._fused import conv_transpose2d_batchnorm_tanh_maxpool_groupnorm
from ._normalization import batch_norm, group_norm
from ._pooling import max_pool2d
from ._precision import precision
from ._transposed_convolution import (
    conv_transpose,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)

__all__ = [
    "batch_norm",
    "conv",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose2d_batchnorm_tanh_maxpool_groupnorm",
    "conv_transpose3d",
    "depthwise_conv2d",
    "explain",
    "group_norm",
    "max_pool2d",
    "precision",
    "show_config",
]
