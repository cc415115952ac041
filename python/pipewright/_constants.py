"""The numbers that stand for streams: those of `subprocess`, which this module does not import, and ours."""

PIPE = -1
STDOUT = -2
DEVNULL = -3
#: Captures the stream, and copies it to this process's own stream as it arrives.
TEE = -5
#: A stream of this process. Only for the native module.
INHERIT = -4
