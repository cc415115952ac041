"""Workers for pipewright hosts: one file, standard library only, Python 3.9 and later, Unix.

A host is a program that uses the Rust crate ``pipewright-ipc``. It starts this program and sends it requests::

    import pipewright_worker

    pipewright_worker.serve(lambda request: request[::-1])

``serve`` answers each request with the bytes that the function returns. ``serve_calls`` passes a ``Call``, which also
iterates over the items of a request, sends items before the reply, asks the host questions and sees cancellations.
``connect`` returns a ``Channel``, which sends and receives messages in any order. Importing this module has no effects.

The connection has a descriptor of its own, so the program may print. A program that runs without a host gets ``NotAWorker``.

Messages go through shared memory on Linux, on x86-64 and in CPython, and through the socket otherwise: Python has no memory
barriers, and only this processor keeps stores in order without them. ``Channel.fallback`` has the reason.
A connection belongs to one thread. The protocol is that of ``docs/wire.md``.
"""

from __future__ import annotations

import array
import collections
import mmap
import os
import platform
import select
import socket
import stat
import struct
import sys
import threading
import time
from typing import Any, Callable, Deque, Dict, Iterator, List, Optional, Sequence, Set, Tuple, Union

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "Call",
    "Cancelled",
    "Channel",
    "Declined",
    "Disconnected",
    "Error",
    "NotAWorker",
    "ProtocolError",
    "Refused",
    "TooLong",
    "connect",
    "is_worker",
    "serve",
    "serve_calls",
]

Bytes = Union[bytes, bytearray, memoryview]

_VARIABLE = "PIPEWRIGHT_IPC"
_VERSION = "1"
_HELLO, _REJECT, _MEMORY, _READY = 1, 2, 3, 4
_PART, _WAKE, _GOODBYE, _PAD = 8, 9, 10, 11
_MESSAGE, _CALL, _REPLY, _FAILED, _CANCEL, _ITEM, _CREDIT = 16, 17, 18, 19, 20, 21, 22
_ASK, _ANSWER, _DECLINED, _RESET, _RESET_DONE, _OPEN_CALL, _ITEMS_END = 23, 24, 25, 26, 27, 28, 29
_LONG = 1

_HEADER = struct.Struct("<IBBHQ")
_TOTAL = struct.Struct("<Q")
_RECORD = struct.Struct("<IBBHQQQ")
_RECORD_BYTES = 32
_CONTROL_BYTES = 4096
_HEAD, _TAIL, _SLEEP = 0, 16, 32  # in words of 64 bits
_FRAME_BYTES = 64 << 10
_SHORT_BYTES = 4 << 10
_READ_BYTES = 64 << 10
_MIN_RING, _MAX_RING = 64 << 10, 64 << 20
_MAX_HELLO_BYTES = 4096
_MAX_HANDLES = 64
_MAX_CALLS = 1024
_WINDOW = 16  # items of a request that may be on their way
_MAX_MESSAGE_BYTES = (1 << 32) - 1
_SPINS = 300

# Of Linux. Some versions of Python lack the names.
_F_ADD_SEALS, _F_GET_SEALS = 1033, 1034
_SEALS = 0x01 | 0x02 | 0x04 | 0x10  # SEAL, SHRINK, GROW, FUTURE_WRITE
_MFD_CLOEXEC, _MFD_ALLOW_SEALING, _MFD_NOEXEC_SEAL = 0x1, 0x2, 0x8
_MADV_DONTFORK = 10

_NOWAIT = getattr(socket, "MSG_DONTWAIT", 0)
_SEND_FLAGS = _NOWAIT | getattr(socket, "MSG_NOSIGNAL", 0)
_RECV_FLAGS = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_CONTROL = socket.CMSG_SPACE(_MAX_HANDLES * 4) if hasattr(socket, "CMSG_SPACE") else 0


class Error(Exception):
    """The connection to the host failed."""


class NotAWorker(Error):
    """No host started this process, or the process has connected already."""


class Refused(Error):
    """The host or this worker refused the connection, because a value differs."""

    def __init__(self, by: str, field: str, host: str, worker: str) -> None:
        super().__init__(f"the {by} refused the connection: {field} differs (host {host!r}, worker {worker!r})")
        self.by, self.field, self.host, self.worker = by, field, host, worker


class ProtocolError(Error):
    """The host violated the protocol."""


class Disconnected(Error):
    """The host has closed the connection, or has ended."""


class Declined(Error):
    """The host declined a question, or accepts no items."""


class Cancelled(Error):
    """The host cancelled the call. Its reply is discarded."""


class TooLong(Error):
    """A message exceeds the agreed maximum. Nothing was sent."""


class _Closed(Disconnected):
    """The host said goodbye."""


class _Header:
    """The header of a frame, and the place of its body: ``end`` is None in the socket."""

    __slots__ = ("length", "kind", "flags", "handles", "id", "total", "after", "at", "end")

    def __init__(self, numbers: Tuple[int, ...]) -> None:
        self.length, self.kind, self.flags, self.handles, self.id = numbers[:5]
        self.total, self.after, self.at = 0, 0, 0
        self.end: Optional[int] = None
        if self.flags & ~_LONG:
            raise ProtocolError(f"a frame has unknown flags ({self.flags:#x})")


class _Link:
    """The socket: bytes and descriptors that arrived, and bytes to send."""

    def __init__(self, number: int, max_backlog_bytes: int) -> None:
        self.socket = socket.socket(fileno=number)
        self.socket.settimeout(None)
        if not sys.platform.startswith("linux"):
            # macOS ignores MSG_DONTWAIT when it sends. The end is ours alone.
            os.set_blocking(number, False)
        self.buffer = bytearray()
        self.at = 0
        self.handles: Deque[int] = collections.deque()
        self.lost_handles = False
        self.ended = False
        self.max_backlog_bytes = max_backlog_bytes

    def close(self) -> None:
        while self.handles:
            os.close(self.handles.popleft())
        self.socket.close()

    def wait(self, events: int, until: Optional[float] = None) -> int:
        poll = select.poll()
        poll.register(self.socket, events)
        left = None if until is None else max(0, int((until - time.monotonic()) * 1000) + 1)
        ready = poll.poll(left)
        if not ready:
            raise Disconnected("the host was silent until the deadline of the handshake")
        return ready[0][1]

    def receive(self, wait: bool) -> bool:
        """Receives once. Returns False if nothing has arrived."""
        while not self.ended:
            try:
                flags = _RECV_FLAGS | (0 if wait else _NOWAIT)
                data, control, flags, _ = self.socket.recvmsg(_READ_BYTES, _CONTROL, flags)
            except BlockingIOError:
                if not wait:
                    return False
                self.wait(select.POLLIN)
                continue
            except ConnectionError:
                data, control, flags = b"", [], 0
            self.take_control(control, flags)
            if data:
                if self.at == len(self.buffer):
                    self.buffer.clear()
                    self.at = 0
                self.buffer += data
                return True
            self.ended = True
        return False

    def receive_into(self, place: memoryview) -> int:
        while True:
            try:
                count, control, flags, _ = self.socket.recvmsg_into([place], _CONTROL, _RECV_FLAGS)
            except BlockingIOError:
                self.wait(select.POLLIN)
                continue
            except ConnectionError as error:
                raise Disconnected("the host has ended") from error
            self.take_control(control, flags)
            if count == 0:
                self.ended = True
                raise Disconnected("the host has ended in the middle of a message")
            return count

    def take_control(self, control: Sequence[Tuple[int, int, bytes]], flags: int) -> None:
        for level, kind, data in control:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                numbers = array.array("i")
                numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
                for number in numbers:
                    os.set_inheritable(number, False)
                self.handles.extend(numbers)
        if flags & getattr(socket, "MSG_CTRUNC", 0):
            self.lost_handles = True
        if len(self.handles) > _MAX_HANDLES:
            raise ProtocolError("more handles than the frames announce")

    def header(self) -> Optional[_Header]:
        """Takes the header at the front of the bytes that have arrived."""
        buffer, at = self.buffer, self.at
        there = len(buffer) - at
        if there < _HEADER.size:
            return None
        header = _Header(_HEADER.unpack_from(buffer, at))
        size = _HEADER.size
        if header.flags & _LONG:
            if there < size + 8:
                return None
            (header.total,) = _TOTAL.unpack_from(buffer, at + size)
            size += 8
        self.at = at + size
        return header

    def take(self, count: int) -> bytes:
        """Takes that many bytes, and waits for them."""
        there = len(self.buffer) - self.at
        if there >= count:
            self.at += count
            data = bytes(memoryview(self.buffer)[self.at - count : self.at])
            self.compact()
            return data
        # The rest is read directly into the place of the body, whose memory is allocated as it arrives.
        parts = [self.buffer[self.at :]]
        self.buffer, self.at = bytearray(), 0
        left = count - there
        while left:
            place = bytearray(min(left, 1 << 20))
            view, filled = memoryview(place), 0
            while filled < len(place):
                filled += self.receive_into(view[filled:])
            parts.append(place)
            left -= len(place)
        return b"".join(parts)

    def compact(self) -> None:
        if self.at == len(self.buffer):
            self.buffer, self.at = bytearray(), 0
        elif self.at > 1 << 20:
            del self.buffer[: self.at]
            self.at = 0

    def take_handles(self, count: int) -> List[int]:
        if count > len(self.handles):
            lost = "the handles of a frame were lost: this process may have no more"
            raise ProtocolError(lost if self.lost_handles else "a frame announces handles, and none came")
        return [self.handles.popleft() for _ in range(count)]

    def send(self, parts: Sequence[Bytes], handles: Sequence[int] = ()) -> None:
        """Sends everything. Receives meanwhile: the host may be waiting for room too."""
        views = [memoryview(part).cast("B") for part in parts if len(part)]
        control: List[Any] = []
        if handles:
            control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", handles))]
        while views:
            try:
                sent = self.socket.sendmsg(views, control, _SEND_FLAGS)
            except BlockingIOError:
                events = select.POLLOUT if self.ended else select.POLLOUT | select.POLLIN
                if self.wait(events) & select.POLLIN and not self.ended:
                    self.receive(False)
                    if len(self.buffer) - self.at > self.max_backlog_bytes:
                        raise Error("the host sends more than it receives: the backlog is full") from None
                continue
            except ConnectionError as error:
                raise Disconnected("the host has ended") from error
            control = []
            while views and sent >= len(views[0]):
                sent -= len(views[0])
                del views[0]
            if sent:
                views[0] = views[0][sent:]


class _Ring:
    """Both memory objects: this side writes ``ours`` and reads ``theirs``."""

    def __init__(self, ring_bytes: int) -> None:
        size = max(_MIN_RING, min(ring_bytes, _MAX_RING))
        self.size = 1 << (size - 1).bit_length()
        self.fd = self.create()
        self.ours = mmap.mmap(self.fd, _CONTROL_BYTES + self.size)
        fcntl.fcntl(self.fd, _F_ADD_SEALS, _SEALS)
        # A page that cannot be allocated later would end this process (SIGBUS).
        os.posix_fallocate(self.fd, 0, _CONTROL_BYTES + self.size)
        self.ours.madvise(_MADV_DONTFORK)
        self.data = memoryview(self.ours)[_CONTROL_BYTES:]
        # An item of this view is one aligned load or store of 64 bits.
        self.words = memoryview(self.ours)[:_CONTROL_BYTES].cast("Q")
        self.nonce = int.from_bytes(os.urandom(8), "little")
        self.data[:8] = self.nonce.to_bytes(8, "little")
        self.head = self.free_from = self.woken = 0
        self.tail = self.known_tail = self.seen_head = self.sleeps = 0
        self.next: Optional[_Header] = None
        # An interlocked instruction, and with that a full barrier on x86-64.
        self.lock = threading.Lock()

    def create(self) -> int:
        size = _CONTROL_BYTES + self.size
        flags = _MFD_CLOEXEC | _MFD_ALLOW_SEALING
        try:
            fd = os.memfd_create("pipewright", flags | _MFD_NOEXEC_SEAL)
        except OSError:  # before Linux 6.3
            fd = os.memfd_create("pipewright", flags)
        os.ftruncate(fd, size)
        return fd

    def open(self, fd: int, size: int) -> int:
        """Maps the host's object. Returns the number at the start of its ring."""
        if size & (size - 1) or not _MIN_RING <= size <= _MAX_RING:
            raise OSError(f"a ring of {size} bytes is not allowed")
        whole = _CONTROL_BYTES + size
        if fcntl.fcntl(fd, _F_GET_SEALS) & _SEALS != _SEALS:
            raise OSError("shared memory was refused: it is not sealed")
        if os.fstat(fd).st_size != whole:
            raise OSError("shared memory was refused: its size is not the announced one")
        os.ftruncate(fd, whole)  # removes pages behind the end, which would be counted below
        if os.fstat(fd).st_blocks * 512 < whole:
            raise OSError("shared memory was refused: it has holes")
        theirs = mmap.mmap(fd, whole, prot=mmap.PROT_READ)
        theirs.madvise(_MADV_DONTFORK)
        self.their_size = size
        self.their_data = memoryview(theirs)[_CONTROL_BYTES:]
        self.their_words = memoryview(theirs)[:_CONTROL_BYTES].cast("Q")
        return int.from_bytes(bytes(self.their_data[:8]), "little")

    def fence(self) -> None:
        self.lock.acquire()
        self.lock.release()

    def peek(self) -> Optional[_Header]:
        """Returns the next record. It keeps its place until it is released."""
        while self.next is None:
            if self.tail == self.seen_head:
                head = self.their_words[_HEAD]
                if head == self.seen_head:
                    return None
                if head < self.seen_head or head - self.tail > self.their_size or head % 64:
                    raise ProtocolError("HEAD of the ring is out of range")
                self.seen_head = head
            at = self.tail & (self.their_size - 1)
            there, left = self.seen_head - self.tail, self.their_size - at
            # A copy: the host could change it while it is checked.
            numbers = _RECORD.unpack(bytes(self.their_data[at : at + _RECORD_BYTES]))
            record = _Header(numbers)
            if record.kind == _PAD:
                if left >= there:
                    raise ProtocolError("a record does not fit at its position in the ring")
                self.tail += left
                continue
            size = (record.length + _RECORD_BYTES + 63) & ~63
            if size > left or size > there:
                raise ProtocolError("a record does not fit at its position in the ring")
            if record.handles:
                raise ProtocolError("a record announces handles")
            record.after, record.total = numbers[5], numbers[6]
            record.at, record.end = at + _RECORD_BYTES, self.tail + size
            self.next = record
        return self.next

    def read(self, record: _Header) -> bytes:
        data = bytes(self.their_data[record.at : record.at + record.length])
        self.next = None
        self.tail = record.end  # type: ignore[assignment]
        if self.tail == self.seen_head or self.tail - self.known_tail >= self.their_size // 16:
            self.words[_TAIL] = self.known_tail = self.tail
        return data

    def has_records(self) -> bool:
        return self.next is not None or self.their_words[_HEAD] != self.tail

    def fall_asleep(self) -> bool:
        """Announces a wait for the socket. Returns False if a record has arrived meanwhile."""
        # The next odd number: an exception of a signal handler may have ended the last wait anywhere.
        self.sleeps = (self.sleeps + 1) | 1
        self.words[_SLEEP] = self.sleeps
        self.fence()
        if self.has_records():
            self.wake_up()
            return False
        return True

    def wake_up(self) -> None:
        self.sleeps += self.sleeps & 1
        self.words[_SLEEP] = self.sleeps

    def sleep_to_end(self) -> int:
        """Returns the number of the host's sleep, if something in the socket has to end it; else 0."""
        sleep = self.their_words[_SLEEP]
        return sleep if sleep & 1 and sleep != self.woken else 0

    def write(self, kind: int, flags: int, number: int, after: int, total: int, body: memoryview) -> bool:
        """Writes and publishes a record. Returns False if there is no room."""
        size = (len(body) + _RECORD_BYTES + 63) & ~63
        at = self.head & (self.size - 1)
        pad = self.size - at if size > self.size - at else 0
        if self.head + pad + size - self.free_from > self.size:
            tail = self.their_words[_TAIL]
            if not self.free_from <= tail <= self.head or tail % 64:
                raise ProtocolError("TAIL of the ring is out of range")
            self.free_from = tail
            if self.head + pad + size - tail > self.size:
                return False
        if pad:
            self.data[at : at + _RECORD_BYTES] = _RECORD.pack(0, _PAD, 0, 0, 0, 0, 0)
            at = 0
        end = at + _RECORD_BYTES
        self.data[at:end] = _RECORD.pack(len(body), kind, flags, 0, number, after, total)
        self.data[end : end + len(body)] = body
        self.head += pad + size
        self.words[_HEAD] = self.head
        return True


class Channel:
    """A conversation with the host: each side sends any message at any time. See ``connect``."""

    def __init__(self, link: _Link, ring: Optional[_Ring], max_message_bytes: int, fallback: Optional[str]) -> None:
        self._link, self._ring = link, ring
        self._taken = self._put = 0
        self._said_goodbye = False
        self._open = True
        self._broken: Optional[Error] = None  # after which nothing more is received
        self._in_message = False
        self._spins = _SPINS if (os.cpu_count() or 1) > 1 else 0
        #: The longest message that both sides accept.
        self.max_message_bytes = max_message_bytes
        #: True if messages go through shared memory.
        self.shared_memory = ring is not None
        #: The reason why they do not.
        self.fallback = fallback

    def send(self, message: Bytes) -> None:
        """Sends a message, and waits for room."""
        self._send(_MESSAGE, 0, message)

    def send_with_handles(self, message: Bytes, handles: Sequence[int]) -> None:
        """Sends a message with up to 64 descriptors. The host receives copies."""
        if len(handles) > _MAX_HANDLES:
            raise Error(f"at most {_MAX_HANDLES} handles go with one message")
        self._send(_MESSAGE, 0, message, handles)

    def recv(self) -> Optional[bytes]:
        """Waits for the next message. Returns None once the host has said goodbye."""
        received = self.recv_with_handles()
        if received is None:
            return None
        for handle in received[1]:
            os.close(handle)
        return received[0]

    def recv_with_handles(self) -> Optional[Tuple[bytes, List[int]]]:
        """Waits for the next message and its descriptors, which the caller has to close."""
        try:
            received = self._receive()
        except _Closed:
            return None
        assert received is not None
        kind, _, body, handles = received
        if kind != _MESSAGE:
            raise ProtocolError(f"unexpected frame of kind {kind}")
        return body, handles

    def close(self) -> None:
        """Sends a goodbye, discards what the host still sends, and closes the connection."""
        if not self._open:
            return
        try:
            self._goodbye()
            while True:
                self._receive()
        except Disconnected:
            pass
        finally:
            self._drop()

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _drop(self) -> None:
        if self._open:
            self._open = False
            self._link.close()

    def _goodbye(self) -> None:
        if not self._said_goodbye:
            self._said_goodbye = True
            self._send_frame(_GOODBYE, 0, 0, memoryview(b""), 0)

    def _send(self, kind: int, number: int, message: Bytes, handles: Sequence[int] = ()) -> None:
        if not self._open or self._said_goodbye:
            raise Disconnected("the connection is closed")
        body = memoryview(message).cast("B")
        total = len(body)
        if total > self.max_message_bytes:
            raise TooLong(f"a message of {total} bytes exceeds the agreed maximum of {self.max_message_bytes}")
        # The host reads the first frame of a ring while the last is written. A socket needs no such help.
        step = total if self._ring is None or handles else _FRAME_BYTES
        if total <= step:
            return self._send_frame(kind, 0, number, body, 0, handles)
        self._send_frame(kind, _LONG, number, body[:step], total)
        for at in range(step, total, step):
            self._send_frame(_PART, 0, number, body[at : at + step], 0)

    def _send_frame(
        self, kind: int, flags: int, number: int, body: memoryview, total: int, handles: Sequence[int] = ()
    ) -> None:
        ring = self._ring
        if ring is not None and not handles:
            sleep = ring.sleep_to_end() if len(body) < _SHORT_BYTES else 0
            if sleep:
                ring.woken = sleep  # by this frame
            elif ring.write(kind, flags, number, self._put, total, body):
                ring.fence()
                sleep = ring.sleep_to_end()
                if sleep:
                    ring.woken = sleep
                    self._link.send([_HEADER.pack(0, _WAKE, 0, 0, 0)])
                return
        header = _HEADER.pack(len(body), kind, flags, len(handles), number)
        if flags & _LONG:
            header += _TOTAL.pack(total)
        self._put += 1
        self._link.send([header, body], handles)

    def _next_frame(self, wait: bool) -> Optional[_Header]:
        """Returns the next frame in order. Its body is still in the ring or in the socket."""
        link, ring = self._link, self._ring
        while True:
            record = None
            if ring is not None:
                record = ring.peek()
                if record is not None:
                    if record.after == self._taken:
                        return record
                    if record.after < self._taken:
                        raise ProtocolError("a record came too late")
            # These bytes arrived before the ring was looked at.
            header = link.header()
            if header is not None:
                if header.kind == _WAKE:
                    if header.length or header.flags or header.handles:
                        raise ProtocolError("a WAKE has a body")
                    continue
                self._taken += 1
                return header
            if link.ended:
                raise Disconnected("the host has ended")
            if not wait:
                if not link.receive(False) and not link.ended:
                    return None
            elif ring is None or record is not None:
                link.receive(True)
            elif not self._spin(ring) and ring.fall_asleep():
                try:
                    link.receive(True)
                finally:
                    ring.wake_up()

    def _spin(self, ring: _Ring) -> bool:
        """Looks for a record for a bounded time, which adapts to the success of earlier ones."""
        words, head = ring.their_words, ring.seen_head
        for _ in range(self._spins):
            if words[_HEAD] != head:
                self._spins = min(self._spins + _SPINS // 4, _SPINS)
                return True
        if self._spins:
            self._spins = max(self._spins - _SPINS // 16, 4)
        return False

    def _receive(self, wait: bool = True) -> Optional[Tuple[int, int, bytes, List[int]]]:
        """Returns the kind, the call, the body and the handles of the next message."""
        if self._broken is not None:
            raise self._broken
        self._in_message = False
        try:
            return self._try_receive(wait)
        except Error as error:
            self._broken = error
            raise
        except BaseException:
            # Of a signal handler. Nothing is lost before the header of a message.
            if self._in_message:
                self._broken = ProtocolError("an exception has interrupted a message")
            raise

    def _try_receive(self, wait: bool) -> Optional[Tuple[int, int, bytes, List[int]]]:
        header = self._next_frame(wait)
        if header is None:
            return None
        self._in_message = True
        kind, length, number = header.kind, header.length, header.id
        is_long = header.flags & _LONG
        if kind == _GOODBYE:
            if length or is_long or header.handles:
                raise ProtocolError("a GOODBYE has a body")
            raise _Closed("the host has closed the connection")
        if not _MESSAGE <= kind <= _ITEMS_END:
            raise ProtocolError(f"unexpected frame of kind {kind}")
        total = header.total if is_long else length
        if total > self.max_message_bytes:
            most = self.max_message_bytes
            raise ProtocolError(f"a frame or message of {total} bytes exceeds the agreed maximum of {most}")
        if is_long and (total <= length or length == 0):
            raise ProtocolError("the parts of a message do not add up to its length")
        handles = self._link.take_handles(header.handles)
        try:
            body = self._body(header)
            if is_long:
                body = self._parts(body, total, number)
        except BaseException:
            for handle in handles:
                os.close(handle)
            raise
        return kind, number, body, handles

    def _parts(self, first: bytes, total: int, number: int) -> bytes:
        parts, left = [first], total - len(first)
        while left:
            header = self._next_frame(True)
            assert header is not None
            if header.kind != _PART:
                raise ProtocolError(f"unexpected frame of kind {header.kind}")
            if not 0 < header.length <= left or header.flags or header.handles or header.id != number:
                raise ProtocolError("the parts of a message do not add up to its length")
            parts.append(self._body(header))
            left -= header.length
        return b"".join(parts)

    def _body(self, header: _Header) -> bytes:
        if header.end is None:
            return self._link.take(header.length) if header.length else b""
        assert self._ring is not None
        return self._ring.read(header)


class Call:
    """A call that is being answered."""

    def __init__(self, calls: _Calls, number: int, request: bytes) -> None:
        self._calls, self._number = calls, number
        #: The request.
        self.request = request

    def is_cancelled(self) -> bool:
        """Returns True if the host cancelled the call or is gone: the reply is then discarded. Never waits."""
        try:
            self._calls.receive_available(self._number)
        except Disconnected:
            return True
        return self._number in self._calls.cancelled

    def send_item(self, item: Bytes) -> None:
        """Sends a part of the reply that precedes it. Waits until the host has taken enough of the earlier ones.

        Raises ``Declined`` if the host accepts no items, and ``Cancelled`` once it has cancelled the call.
        """
        calls, number = self._calls, self._number
        while True:
            credit = calls.credit.get(number)
            if credit is None:
                raise Declined("the caller accepts no items")
            if credit > 0:
                calls.credit[number] = credit - 1
                calls.channel._send(_ITEM, number, item)
                return
            if number in calls.cancelled:
                raise Cancelled("the call was cancelled")
            calls.receive_next(number)

    def items(self) -> Iterator[bytes]:
        """Returns an iterator over the items of a request that comes in pieces. It waits for each, and ends after the last one.

        It has no items if the request came as a whole. The host has sent at most 16 items that were not returned yet. The
        handler may return before the last item, and a later iterator continues after the items of an earlier one. Raises
        ``Cancelled`` once the host has cancelled the call, also because its caller gave up before the last item.
        """
        calls, number = self._calls, self._number
        items = calls.items
        if items is None or items.number != number:
            return
        while True:
            if calls.items is not items:
                raise Error("the call has ended")
            item = items.arrived.popleft() if items.arrived else None
            if item is None:
                if items.have_ended:
                    return
                if number in calls.cancelled:
                    raise Cancelled("the call was cancelled")
            more = items.new_credit()
            if more:
                calls.channel._send(_CREDIT, number, more.to_bytes(4, "little"))
            if item is not None:
                yield item
            else:
                calls.receive_next(number)

    def ask(self, question: Bytes) -> bytes:
        """Asks the host a question, and returns its answer.

        Raises ``Declined`` with the host's reason, and ``Cancelled`` once it has cancelled the call.
        """
        calls, number = self._calls, self._number
        if number in calls.cancelled:
            raise Cancelled("the call was cancelled")
        calls.channel._send(_ASK, number, question)
        while True:
            answer = calls.receive_next(number)
            if answer is not None:
                kind, body = answer
                if kind == _ANSWER:
                    return body
                raise Declined(body.decode("utf-8", "replace"))
            if number in calls.cancelled:
                raise Cancelled("the call was cancelled")


class _Items:
    """The items that follow the request of the call that is being answered."""

    def __init__(self, number: int, have_ended: bool) -> None:
        self.number, self.have_ended = number, have_ended
        self.arrived: Deque[bytes] = collections.deque()
        self.credit = 0  # that the host has left

    def add(self, item: bytes) -> None:
        if self.credit == 0 or self.have_ended:
            raise ProtocolError("an item without credit")
        self.credit -= 1
        self.arrived.append(item)

    def new_credit(self) -> int:
        """Returns the credit that the host gets now, half a window at a time: each costs a message."""
        more = _WINDOW - self.credit - len(self.arrived)
        if self.have_ended or more < _WINDOW // 2:
            return 0
        self.credit += more
        return more


class _Calls:
    """The messages of the host, sorted: calls in their order, and messages about the call that is being answered."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.waiting: Deque[Tuple[int, int, bytes]] = collections.deque()
        self.credit: Dict[int, int] = {}
        self.cancelled: Set[int] = set()
        self.items: Optional[_Items] = None
        # Calls that wait, and whose items have ended.
        self.without_items: Set[int] = set()
        # More credit for these may be on its way.
        self.answered: Deque[int] = collections.deque(maxlen=_MAX_CALLS)

    def next(self) -> Tuple[int, int, bytes]:
        while not self.waiting:
            self.receive_next(0)
        kind, number, body = self.waiting.popleft()
        if kind == _OPEN_CALL:
            # Before the next message: it may be the end of the items.
            self.items = _Items(number, number in self.without_items)
            self.without_items.discard(number)
        return kind, number, body

    def is_waiting(self, number: int) -> bool:
        return any(number == other for _, other, _ in self.waiting)

    def receive_next(self, current: int) -> Optional[Tuple[int, bytes]]:
        received = self.channel._receive()
        assert received is not None
        return self.sort(current, received)

    def receive_available(self, current: int) -> None:
        while True:
            received = self.channel._receive(False)
            if received is None:
                return
            self.sort(current, received)

    def sort(self, current: int, received: Tuple[int, int, bytes, List[int]]) -> Optional[Tuple[int, bytes]]:
        """Returns the answer to a question of the current call."""
        try:
            return self.try_sort(current, received)
        except ProtocolError as error:
            self.channel._broken = error  # a handler may ignore the error
            raise

    def try_sort(self, current: int, received: Tuple[int, int, bytes, List[int]]) -> Optional[Tuple[int, bytes]]:
        kind, number, body, handles = received
        for handle in handles:
            os.close(handle)
        if kind in (_MESSAGE, _CALL, _OPEN_CALL, _RESET):
            if len(self.waiting) >= _MAX_CALLS:
                raise ProtocolError("too many calls at a time")
            self.waiting.append((kind, number, body))
        elif kind == _CANCEL:
            # One that comes after the reply would be kept forever. Plain messages and resets have the number 0.
            if number != 0 and (number == current or self.is_waiting(number)):
                self.cancelled.add(number)
        elif kind == _CREDIT:
            if number not in self.answered:
                if number not in self.credit and len(self.credit) >= 2 * _MAX_CALLS:
                    self.drop_oldest_credit(current)
                more = int.from_bytes(body[:4], "little") if len(body) >= 4 else 0
                self.credit[number] = min(self.credit.get(number, 0) + more, (1 << 32) - 1)
        elif kind == _ITEM:
            if self.items is not None and self.items.number == number:
                self.items.add(body)
            elif self.is_waiting(number) or number == current != 0:
                raise ProtocolError("an item without credit")
            # Another one belongs to a call that has ended.
        elif kind == _ITEMS_END:
            if self.items is not None and self.items.number == number:
                self.items.have_ended = True
            elif self.is_waiting(number):
                self.without_items.add(number)
        elif kind in (_ANSWER, _DECLINED):
            # Another one belongs to a call that has ended.
            if number == current:
                return kind, body
        else:
            raise ProtocolError(f"a frame of kind {kind} from a host")
        return None

    def drop_oldest_credit(self, current: int) -> None:
        """Drops the credit of a call that never came: the host has withdrawn it."""
        waiting = {number for _, number, _ in self.waiting} | {current}
        del self.credit[next((number for number in self.credit if number not in waiting), next(iter(self.credit)))]

    def end(self, kind: int, number: int, body: Bytes) -> None:
        """Sends the last message of a call."""
        if self.credit.pop(number, None) is not None:
            self.answered.append(number)
        self.cancelled.discard(number)
        self.items = None
        self.without_items.discard(number)
        try:
            self.channel._send(kind, number, body)
        except TooLong as error:
            if kind == _MESSAGE:
                raise
            self.channel._send(_FAILED, number, self.text(error))

    def text(self, error: BaseException) -> bytes:
        try:
            text = str(error) or type(error).__name__
        except Exception:
            # The exception's own code failed, and the worker goes on.
            text = type(error).__name__
        return text.encode("utf-8", "replace")[: self.channel.max_message_bytes]


_claimed = False


def is_worker() -> bool:
    """Returns True if a host started this process as its worker. Does not connect to it."""
    return _claimed or _inherited() is not None


def serve(handler: Callable[[bytes], Bytes], **options: Any) -> None:
    """Connects to the host, and answers each request with what the function returns, until the host ends.

    If the function raises an exception, the call fails with its text. The options are those of ``connect``.
    """
    _serve(lambda call: handler(call.request), None, options)


def serve_calls(
    handler: Callable[[Call], Bytes], reset: Optional[Callable[[], bool]] = None, **options: Any
) -> None:
    """Like ``serve``, with a ``Call`` for each request.

    ``reset`` returns the program to its state right after the start, so that no call can affect a later one. It returns
    False if it cannot: the host then replaces this worker.
    """
    _serve(handler, reset, options)


def _serve(handler: Callable[[Call], Bytes], reset: Optional[Callable[[], bool]], options: Dict[str, Any]) -> None:
    channel = connect(**options)
    calls = _Calls(channel)
    try:
        while True:
            kind, number, request = calls.next()
            if kind == _RESET:
                done = reset is not None and reset()
                calls.end(_RESET_DONE if done else _FAILED, number, b"")
                continue
            calls.receive_available(number)
            if number in calls.cancelled:
                calls.end(_FAILED, number, b"cancelled before the call started")
                continue
            try:
                reply = memoryview(handler(Call(calls, number, request))).cast("B")
            except (Disconnected, ProtocolError):
                raise
            except Exception as error:
                if kind == _MESSAGE:
                    raise
                calls.end(_FAILED, number, calls.text(error))
            else:
                calls.end(_MESSAGE if kind == _MESSAGE else _REPLY, number, reply)
    except _Closed:
        try:
            channel._goodbye()
        except Disconnected:
            pass
    except Disconnected:
        pass
    finally:
        channel._drop()


def connect(
    *,
    app: str = "",
    build: str = "",
    salt: str = "",
    max_message_bytes: int = 256 << 20,
    shared_memory: str = "auto",
    ring_bytes: int = 2 << 20,
    handshake_timeout: float = 10.0,
    max_backlog_bytes: int = 512 << 20,
) -> Channel:
    """Connects to the host that started this process. Works once.

    ``app``, ``build`` and ``salt`` have to be those of the host, or the connection is ``Refused``. ``shared_memory`` is
    ``"auto"``, ``"off"`` or ``"required"``. ``ring_bytes`` is the size of the ring that this side writes.
    """
    if shared_memory not in ("auto", "off", "required"):
        raise ValueError("shared_memory is 'auto', 'off' or 'required'")
    number = _inherited()
    global _claimed
    if number is None:
        raise NotAWorker("this process was not started as a worker, or has connected already")
    os.set_inheritable(number, False)
    _claimed = True
    link = _Link(number, max_backlog_bytes)
    try:
        identity = _identity(app, build, salt)
        return _Handshake(link, identity, handshake_timeout).run(max_message_bytes, shared_memory, ring_bytes)
    except BaseException:
        link.close()
        raise


def _inherited() -> Optional[int]:
    """Returns the number of the socket that the host passed on, if it is still unclaimed."""
    text = os.environ.get(_VARIABLE, "")
    if fcntl is None or not (text.isascii() and text.isdigit() and 2 < int(text) < 1 << 31):
        return None
    number = int(text)
    try:
        if os.get_inheritable(number) is False or not stat.S_ISSOCK(os.fstat(number).st_mode):
            return None
        found = os.fstat(number)
        ident = os.environ.get(_VARIABLE + "_ID", "")
        if ident.startswith(f"{number}:") and ident != f"{number}:{found.st_dev}:{found.st_ino}":
            return None
        copy = socket.socket(fileno=os.dup(number))
        with copy:
            if copy.family != socket.AF_UNIX or copy.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) != socket.SOCK_STREAM:
                return None
            if copy.getsockname() or copy.getpeername():
                return None
    except OSError:
        return None
    return number


def _arch() -> str:
    machine = platform.machine().lower()
    names = {"amd64": "x86_64", "arm64": "aarch64", "i386": "x86", "i586": "x86", "i686": "x86"}
    machine = names.get(machine, machine)
    if machine.startswith("armv"):
        machine = "arm"
    elif machine.startswith("ppc64"):
        machine = "powerpc64"
    bits = struct.calcsize("P") * 8
    if machine == "x86_64" and bits == 32:
        machine = "x86"
    return f"{machine}-{bits}-{sys.byteorder}"


def _identity(app: str, build: str, salt: str) -> Dict[str, str]:
    values = {"version": _VERSION, "app": app, "build": build, "arch": _arch(), "user": str(os.geteuid()), "salt": salt}
    return {key: _clean(value) for key, value in values.items()}


def _clean(value: str) -> str:
    """Returns the value without control characters, as it is sent."""
    return "".join(letter for letter in value if not (letter < " " or "\x7f" <= letter <= "\x9f"))


def _number(text: Optional[str]) -> Optional[int]:
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 20:
        return None
    return int(text)


def _no_ring() -> Optional[str]:
    """Returns the reason why this process has no shared memory."""
    if not sys.platform.startswith("linux") or not hasattr(os, "memfd_create"):
        return "the Python worker has shared memory on Linux only"
    if _arch() != "x86_64-64-little" or sys.implementation.name != "cpython":
        return "the Python worker has shared memory in CPython on x86-64 only"
    return None


class _Handshake:
    def __init__(self, link: _Link, identity: Dict[str, str], timeout: float) -> None:
        self.link, self.identity, self.timeout = link, identity, timeout

    def run(self, max_message_bytes: int, shared_memory: str, ring_bytes: int) -> Channel:
        _, theirs, _ = self.receive({_HELLO: "pipewright-ipc"})
        for key, ours in self.identity.items():
            if theirs.get(key) != ours:
                self.reject("worker", key, theirs.get(key, "nothing"), ours)
        most = min(max_message_bytes, _MAX_MESSAGE_BYTES, _number(theirs.get("max_message_bytes")) or 0)
        why = "shared memory is off" if shared_memory == "off" else _no_ring()
        words = "calls.v1 streams.v1 handles.v1" + ("" if why else " shm.v1")
        hello = {**self.identity, "max_message_bytes": str(min(max_message_bytes, _MAX_MESSAGE_BYTES)), "can": words}
        self.send(_HELLO, "pipewright-ipc", hello)
        kind, fields, handle = self.receive({_MEMORY: "memory", _READY: "ready"})
        ring: Optional[_Ring] = None
        if kind == _MEMORY:
            ring = self.exchange_memory(fields, handle, ring_bytes, why)
            _, fields, handle = self.receive({_READY: "ready"})
        if handle is not None:
            os.close(handle)
        if _number(fields.get("shared")) == 1:
            if ring is None or _number(fields.get("proof")) != ring.nonce:
                raise ProtocolError("the host enabled shared memory without proof")
            return Channel(self.link, ring, most, None)
        why = why or fields.get("why") or "the host has shared memory off"
        if shared_memory == "required":
            self.reject("worker", "shared memory", why, why)
        return Channel(self.link, None, most, why)

    def exchange_memory(
        self, fields: Dict[str, str], handle: Optional[int], ring_bytes: int, why: Optional[str]
    ) -> Optional[_Ring]:
        """Sends MEMORY: an object of this side, and the number found in that of the host."""
        ring: Optional[_Ring] = None
        answer: Dict[str, str] = {}
        try:
            if why is not None:
                raise OSError(why)
            ring = _Ring(ring_bytes)
            size = _number(fields.get("bytes"))
            if size is None or handle is None:
                raise OSError(fields.get("why") or "no memory was passed")
            proof = ring.open(handle, size)
            answer = {"bytes": str(ring.size), "proof": str(proof)}
        except (OSError, ValueError) as error:
            if ring is not None:
                os.close(ring.fd)
            ring, answer = None, {"why": str(error)}
        finally:
            if handle is not None:
                os.close(handle)
        self.send(_MEMORY, "memory", answer, [] if ring is None else [ring.fd])
        if ring is not None:
            os.close(ring.fd)
        return ring

    def send(self, kind: int, first: str, fields: Dict[str, str], handles: Sequence[int] = ()) -> None:
        lines = [first] + [f"{key}={_clean(value)}" for key, value in fields.items()]
        body = ("\n".join(lines) + "\n").encode()
        self.link.send([_HEADER.pack(len(body), kind, 0, len(handles), 0), body], handles)

    def reject(self, by: str, field: str, host: str, worker: str) -> None:
        try:
            self.send(_REJECT, "rejected", {"by": by, "field": field, "host": host, "worker": worker})
        except Error:
            pass
        raise Refused(by, field, host, worker)

    def receive(self, expected: Dict[int, str]) -> Tuple[int, Dict[str, str], Optional[int]]:
        """Returns the kind, the fields and the handle of the next frame."""
        link, until = self.link, time.monotonic() + self.timeout
        header = None
        while True:
            if header is None:
                header = link.header()
            if header is not None:
                if header.length > _MAX_HELLO_BYTES or header.flags:
                    raise ProtocolError("a frame of the handshake is too long")
                if len(link.buffer) - link.at >= header.length:
                    break
            if link.ended:
                raise Disconnected("the host has ended during the handshake")
            link.wait(select.POLLIN, until)
            link.receive(False)
        body = link.take(header.length) if header.length else b""
        if header.kind == _REJECT:
            fields = self.fields(body, "rejected")
            value = fields.get
            raise Refused(value("by", "host"), value("field", ""), value("host", ""), value("worker", ""))
        if header.kind not in expected:
            raise ProtocolError(f"unexpected frame of kind {header.kind}")
        fields = self.fields(body, expected[header.kind])
        handle = None
        if header.handles > 1:
            raise ProtocolError("a frame of the handshake has more than one handle")
        if header.handles and not (link.lost_handles and not link.handles):
            (handle,) = link.take_handles(1)
        link.lost_handles = False
        return header.kind, fields, handle

    def fields(self, body: bytes, first: str) -> Dict[str, str]:
        try:
            lines = body.decode("utf-8").split("\n")
        except UnicodeDecodeError:
            raise ProtocolError("a frame of the handshake is not text") from None
        if lines[0] != first:
            raise ProtocolError(f"a frame without the first line {first!r}")
        fields: Dict[str, str] = {}
        for line in lines[1:]:
            key, equals, value = line.partition("=")
            if equals:
                fields.setdefault(key, value)
        return fields
