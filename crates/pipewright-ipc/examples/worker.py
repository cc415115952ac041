"""A worker of another language, written from docs/wire.md alone: echoes messages, without shared memory.

The first line of a message may be an order: `long` answers with a message in three parts, `big N` with N
bytes in one frame, `fd` writes a line into the handles that came with it.
"""
import array
import os
import socket
import struct
import sys

HEADER = struct.Struct("<IBBHQ")
HELLO, REJECT, READY, PART, WAKE, GOODBYE, MESSAGE = 1, 2, 4, 8, 9, 10, 16
LONG = 1


class Link:
    def __init__(self, number):
        self.socket = socket.socket(fileno=number)
        os.set_inheritable(number, False)
        self.arrived = b""
        self.handles = []

    def read(self, count):
        while len(self.arrived) < count:
            room = socket.CMSG_SPACE(64 * array.array("i").itemsize)
            data, ancillary, flags, _ = self.socket.recvmsg(1 << 16, room)
            for level, kind, body in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    numbers = array.array("i")
                    numbers.frombytes(body[: len(body) - len(body) % numbers.itemsize])
                    self.handles.extend(numbers)
            if not data:
                sys.exit("the host is gone")
            self.arrived += data
        taken, self.arrived = self.arrived[:count], self.arrived[count:]
        return taken

    def hear(self):
        length, kind, flags, handles, _ = HEADER.unpack(self.read(HEADER.size))
        total = struct.unpack("<Q", self.read(8))[0] if flags & LONG else length
        body = self.read(length)
        own, self.handles = self.handles[:handles], self.handles[handles:]
        return kind, body, total, own

    def say(self, kind, body=b"", total=None):
        flags = 0 if total is None else LONG
        head = HEADER.pack(len(body), kind, flags, 0, 0)
        if total is not None:
            head += struct.pack("<Q", total)
        self.socket.sendall(head + body)

    def message(self):
        """A whole message and its handles; None after the goodbye."""
        kind, body, total, handles = self.hear()
        while kind == WAKE:
            kind, body, total, handles = self.hear()
        if kind == GOODBYE:
            return None, []
        assert kind == MESSAGE, kind
        parts = [body]
        left = total - len(body)
        while left:
            kind, body, _, _ = self.hear()
            if kind != WAKE:
                assert kind == PART and 0 < len(body) <= left, kind
                parts.append(body)
                left -= len(body)
        return b"".join(parts), handles


def main():
    link = Link(int(os.environ["PIPEWRIGHT_IPC"]))
    kind, hello, _, _ = link.hear()
    lines = hello.decode().split("\n")
    assert kind == HELLO and lines[0] == "pipewright-ipc", lines
    ours = [line for line in lines if line.split("=")[0] != "can"]
    link.say(HELLO, ("\n".join(ours) + "can=handles.v1 something.new\nunknown line\n").encode())
    kind, body, _, _ = link.hear()
    assert kind == READY, (kind, body)
    while True:
        message, handles = link.message()
        if message is None:
            link.say(GOODBYE)
            return
        if message == b"long":
            link.say(MESSAGE, b"in", total=8)
            link.say(WAKE)
            link.say(PART, b"par")
            link.say(PART, b"ts!")
        elif message.startswith(b"big "):
            link.say(MESSAGE, b"x" * int(message[4:]))
        else:
            for handle in handles:
                os.write(handle, b"from python\n")
                os.close(handle)
            link.say(MESSAGE, message)


main()
