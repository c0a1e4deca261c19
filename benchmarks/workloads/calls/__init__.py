"""What the host pays for a call, whatever it computes: `--workload calls`."""
