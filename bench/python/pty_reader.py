"""Reads terminals with the module pty. Arguments as for the reader in bench/c/pty.c."""

import os
import pty
import sys


def one(program, size):
    pid, ours = pty.fork()
    if pid == 0:
        os.execl(program, program, "child", str(size))
    total = 0
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:
            break
        if not chunk:
            break
        total += len(chunk)
    os.close(ours)
    if os.waitpid(pid, 0)[1] != 0:
        sys.exit(1)
    return total


case, program, count, most = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
print(sum(one(program, n * 7919 % most + 1 if case == "loss" else most) for n in range(count)))
