"""The worker of the suite `ipc::clients`: `MODE [KEY=VALUE...]`. The workers in other languages do the same."""
import itertools
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import pipewright_worker as pipewright  # noqa: E402


def body(number: int) -> bytes:
    return bytes([number % 256]) * (number * 7919 % 200000)


class RequestError(Exception):
    """A request that fails. A plain message has no reply for that, so the worker ends with this error."""


class Silent(Exception):
    """An exception whose text cannot be had."""

    def __str__(self) -> str:
        raise ValueError("no text")


class Acts:
    def __init__(self) -> None:
        self.count = 0

    def reset(self) -> bool:
        self.count = 0
        return True

    def call(self, call: pipewright.Call) -> bytes:
        self.count += 1
        name, _, rest = call.request.partition(b" ")
        if name == b"echo":
            return rest
        if name == b"pid":
            return str(os.getpid()).encode()
        if name == b"count":
            return str(self.count).encode()
        if name == b"long":
            return b"x" * int(rest)
        if name == b"fail":
            raise RequestError(rest.decode())
        if name == b"fail-without-text":
            raise Silent
        if name == b"exit":
            print("a line before\nthe last line", file=sys.stderr, flush=True)
            os._exit(int(rest))
        if name == b"print":
            for number in range(int(rest)):
                print(f"line {number} on stdout", flush=True)
        elif name == b"wait":
            until = time.monotonic() + int(rest) / 1000
            while time.monotonic() < until:
                if call.is_cancelled():
                    raise RuntimeError("cancelled")
                time.sleep(0.002)
        elif name == b"items":
            for number in range(int(rest)):
                call.send_item(str(number).encode())
        elif name == b"ask":
            return call.ask(rest)
        elif name == b"asks":
            return str(sum(int(call.ask(str(number).encode())) for number in range(int(rest)))).encode()
        elif name == b"count-items":
            number = 0
            for item in call.items():
                if item != body(number):
                    raise RequestError(f"item {number} is wrong")
                number += 1
            if list(call.items()):
                raise RequestError("an item after the end")
            return str(number).encode()
        elif name == b"take-items":
            for _ in call.items():
                pass
        elif name == b"sum":
            return str(sum(map(len, call.items()))).encode()
        elif name == b"first-item":
            return next(call.items())
        elif name == b"two-by-two":
            # Each iterator continues after the items of the one before.
            pairs = 1
            while len(list(itertools.islice(call.items(), 2))) == 2:
                pairs += 1
            return str(pairs).encode()
        elif name == b"echo-items":
            for item in call.items():
                call.send_item(item)
        elif name == b"exit-at-item":
            next(call.items())
            os._exit(3)
        elif name == b"after-cancel":
            while not call.is_cancelled():
                time.sleep(0.002)
            while rest == b"send":
                call.send_item(b"x")
            for _ in call.items():
                pass
        else:
            raise RequestError("unknown request")
        return b"done"


def handles(channel: pipewright.Channel) -> None:
    """Writes each message into the handles that come with it, and answers with their number."""
    while True:
        received = channel.recv_with_handles()
        if received is None:
            return
        message, numbers = received
        for number in numbers:
            with open(number, "wb") as file:
                file.write(message)
        channel.send(bytes([len(numbers)]))


def gives(channel: pipewright.Channel) -> None:
    """Answers each message with the end of a pipe, through which the message comes back."""
    while True:
        message = channel.recv()
        if message is None:
            return
        reader, writer = os.pipe()
        channel.send_with_handles(b"read it", [reader])
        os.close(reader)
        with open(writer, "wb") as file:
            file.write(message)


def both(channel: pipewright.Channel, count: int) -> None:
    """Sends that many messages, then receives as many."""
    for number in range(count):
        channel.send(body(number))
    for number in range(count):
        if channel.recv() != body(number):
            sys.exit(f"message {number} is wrong")
    channel.send(b"right")


def source(channel: pipewright.Channel) -> None:
    """Sends until the host is gone."""
    number = 0
    try:
        while True:
            channel.send(body(number))
            number += 1
    except pipewright.Disconnected:
        pass


def main() -> None:
    mode = sys.argv[1]
    values = dict(pair.split("=", 1) for pair in sys.argv[2:])
    count = int(values.pop("count", "0"))
    names = {"shm": "shared_memory", "ring": "ring_bytes", "most": "max_message_bytes"}
    options = {names.get(key, key): value for key, value in values.items()}
    options.update({key: int(options[key]) for key in ("ring_bytes", "max_message_bytes") if key in options})
    if mode == "echo":
        pipewright.serve(lambda request: request, **options)
    elif mode == "calls":
        acts = Acts()
        pipewright.serve_calls(acts.call, acts.reset, **options)
    elif mode == "silent":
        channel = pipewright.connect(**options)
        while True:
            time.sleep(1000)
    else:
        with pipewright.connect(**options) as channel:
            if mode == "both":
                both(channel, count)
            else:
                {"handles": handles, "gives": gives, "source": source}[mode](channel)


try:
    main()
except (pipewright.Error, RequestError) as error:
    sys.exit(f"worker: {type(error).__name__}: {error}")
