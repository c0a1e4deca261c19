"""The Kernel IR: a structured program over one lane domain, before LLVM or SPIR-V."""
