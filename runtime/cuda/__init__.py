"""The `cuda` devices: PTX programs on NVIDIA GPUs, through the driver API of the package cuda-bindings."""
