# written by `python -m tests.architecture.public_stub` from the statements PUBLIC
from loopgrad.lazy.samples.convolutions import convolve as convolve
from loopgrad.lazy.samples.convolutions import convolve2d as convolve2d
from loopgrad.lazy.samples.convolutions import correlate as correlate
from loopgrad.lazy.samples.convolutions import correlate2d as correlate2d
from loopgrad.lazy.samples.convolutions import fftconvolve as fftconvolve
from loopgrad.lazy.samples.recursive_filters import filtfilt as filtfilt
from loopgrad.lazy.samples.recursive_filters import lfilter as lfilter
from loopgrad.lazy.samples.recursive_filters import lfilter_zi as lfilter_zi
from loopgrad.lazy.samples.recursive_filters import sosfilt as sosfilt
from loopgrad.lazy.samples.recursive_filters import sosfilt_zi as sosfilt_zi
from loopgrad.lazy.samples.recursive_filters import sosfiltfilt as sosfiltfilt

oaconvolve = fftconvolve
