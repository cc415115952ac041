"""Sends messages through multiprocessing.Pipe: `MODE SIZE COUNT`; prints nanoseconds, as bench/c/ipc.c does."""
import multiprocessing
import os
import struct
import sys
import time

mode, size, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
warm_up = count // 20


def check(body, number):
    stamp = struct.pack("=Q", number)
    middle = all(body[size // 4 * part] == 7 for part in (1, 2, 3)) if size > 64 else True
    if len(body) != size or body[:8] != stamp or body[-8:] != stamp or not middle:
        sys.exit(f"message {number} is wrong")


def worker(end):
    os.sched_setaffinity(0, {1})
    if mode == "round":
        for _ in range(count):
            end.send_bytes(end.recv_bytes())
        return
    for number in range(count):
        if number == warm_up:
            start = time.perf_counter_ns()
        check(end.recv_bytes(), number)
    print((time.perf_counter_ns() - start) / (count - warm_up), flush=True)


def main():
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=worker, args=(theirs,))
    process.start()
    os.sched_setaffinity(0, {0})
    body = bytearray(b"\x07" * size)
    samples = []
    for number in range(count):
        start = time.perf_counter_ns()
        body[:8] = body[-8:] = struct.pack("=Q", number)
        ours.send_bytes(body)
        if mode == "round":
            check(ours.recv_bytes(), number)
            samples.append(time.perf_counter_ns() - start)
    if mode == "round":
        samples = sorted(samples[warm_up:])
        print(samples[len(samples) // 2])
    process.join()
    sys.exit(process.exitcode)


main()
