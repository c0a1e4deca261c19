"""The state of a tensor: its graph value, memory shared with views, evaluation, device, exchange; and the class.

No array function: `tensor` and `operators` alone hang those of `lazy.numpy` on the class.
"""
