"""AMD GPUs: code objects by LLVM's AMDGPU back end and a linker of our own."""
