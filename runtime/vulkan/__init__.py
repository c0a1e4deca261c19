"""The `vulkan` devices: SPIR-V programs on any Vulkan 1.2 driver, through the `vulkan` package's cffi."""
