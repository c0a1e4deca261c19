"""Programs that users of many fields write, one text for NumPy, loopgrad and JAX: `--workload programs`."""
