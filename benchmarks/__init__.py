"""Speed and accuracy of cupyconv, beside the limit of the GPU and beside PyTorch with cuDNN."""
