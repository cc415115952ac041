"""The peer of Python's standard library, with the command line of `peers`.

python3 peer.py python OPERATION COUNT WARM_UP EXPECTED_BYTES PROGRAM [ARGUMENT...]
"""

import subprocess
import sys
import time


def status(command):
    return subprocess.run(command, check=True), None


def capture(command):
    done = subprocess.run(
        command, check=True, stdin=subprocess.DEVNULL, capture_output=True
    )
    return done, done.stdout


OPERATIONS = {"status": status, "capture": capture, "collect": capture}


def verify(operation, output, expected_bytes):
    """Exits the program unless the output is complete."""
    length = 0 if output is None else len(output)
    if length != expected_bytes:
        sys.exit(f"received {length} bytes instead of {expected_bytes}")
    if operation == "capture":
        last = b"line %03d\n" % ((expected_bytes // 9 - 1) % 1000)
        if not (output.startswith(b"line 000\n") and output.endswith(last)):
            sys.exit("received lines that the child did not write")
    if operation == "collect" and (output[:1], output[-1:]) != (b"f", b"f"):
        sys.exit("received bytes that the child did not write")


def peak_rss_bytes():
    with open("/proc/self/status", encoding="ascii") as lines:
        for line in lines:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def main():
    operation = sys.argv[2]
    count, warm_up, expected_bytes = (int(argument) for argument in sys.argv[3:6])
    command = sys.argv[6:]
    operate = OPERATIONS[operation]
    samples = []
    for index in range(-warm_up, count):
        before = time.perf_counter_ns()
        done, output = operate(command)
        after = time.perf_counter_ns()
        verify(operation, output, expected_bytes)
        # Frees the output before the next operation, or two outputs would be alive at once.
        del done, output
        if index >= 0:
            samples.append(after - before)
    print("\n".join(str(sample) for sample in samples))
    print(f"peak_rss_bytes={peak_rss_bytes()}")


main()
