"""An emulator of AMD GPUs for tests: it runs the machine code of code objects, instruction by instruction."""
