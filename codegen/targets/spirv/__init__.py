"""The SPIR-V target: Kernel IR to compute shaders for Vulkan 1.2 and later, one module a kernel."""
