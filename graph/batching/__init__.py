"""vmap: a batching row per primitive and region. (Being written by the batching engineer, not by the passes engineer.)"""
