"""The NVPTX target: Kernel IR to PTX, one text a program, which NVIDIA's driver assembles for its GPU."""
