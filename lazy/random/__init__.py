"""`lg.random`: numbers that only look random. Everything is computed from a key and a counter, so the same numbers come
on every device and with any number of threads, and come again in a reverse pass, which stores none of them."""
