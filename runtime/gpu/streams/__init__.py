"""The driver for GPUs whose work is ordered by a stream: CUDA and HIP give a `StreamApi`, the rest is here."""
