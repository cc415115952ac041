//! The act of a worker that does anything: `peer=HOSTILE;LOG;RING;SCRIPT`.
//!
//! HOSTILE is a file: the process that creates it is hostile and performs the script; all others serve calls. With `-`,
//! all are hostile. LOG gets a line for each call that was taken, each that was answered completely and each CANCEL:
//! `EVENT NUMBER BORN`, with the time at which the process began, which tells the processes apart. RING is the size of
//! the ring, 0 for none. SCRIPT has the steps, separated by blanks; [`Peer::perform`] lists them.

mod wire;

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::exit;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use pipewright_os::base::handle::Handle;
use pipewright_os::base::signal::Signal;
use pipewright_os::channel::handle_channel::{self, ChannelEnd};
use pipewright_os::channel::shm::{ShmOptions, Written};
use pipewright_tests::hostile;

use wire::{GOODBYE, Link, Message, TAIL};

const REPLY: u8 = 18;
const FAILED: u8 = 19;
const CANCEL: u8 = 20;
const ITEM: u8 = 21;
const CREDIT: u8 = 22;
const ASK: u8 = 23;
const RESET: u8 = 26;
const RESET_DONE: u8 = 27;

/// The longest life of a peer, whatever its script.
const LIFE: Duration = Duration::from_secs(20);

/// A call that was taken and not answered.
#[derive(Clone, Copy)]
struct Call {
    id: u64,
    /// The number in its request.
    number: u64,
}

struct Peer {
    link: Link,
    /// The number of the socket's descriptor.
    socket: RawFd,
    calls: VecDeque<Call>,
    /// All calls that were taken.
    taken: Vec<Call>,
    /// The nanoseconds of the epoch at which this process began.
    born: u128,
    /// The greatest id seen.
    last_id: u64,
    log: File,
    /// The last TAIL of the host in the log.
    told: u64,
    /// The answers to each RESET: kinds.
    resets: Vec<u8>,
}

pub(crate) fn perform(value: &str) -> io::Result<()> {
    let born = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |it| it.as_nanos());
    let mut parts = value.splitn(4, ';');
    let mut next = || parts.next().ok_or_else(|| io::Error::other("peer=HOSTILE;LOG;RING;SCRIPT"));
    let (role, log, ring, script) = (next()?, next()?, next()?, next()?);
    thread::spawn(|| {
        let end = Instant::now() + LIFE;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            thread::park_timeout(left);
        }
        exit(9);
    });
    let is_hostile =
        role == "-" || OpenOptions::new().write(true).create_new(true).open(role).is_ok();
    let log = OpenOptions::new().append(true).create(true).open(log)?;
    let socket = socket();
    if is_hostile && script.starts_with("shake") {
        return perform_handshake(script);
    }
    let early: Option<fn()> = (is_hostile && script.starts_with("deaf")).then_some(deafen);
    let link = Link::connect(ring.parse().map_err(io::Error::other)?, u64::from(u32::MAX), early)?;
    let mut peer = Peer {
        link,
        socket,
        calls: VecDeque::new(),
        taken: Vec::new(),
        born,
        last_id: 0,
        log,
        told: 0,
        resets: vec![RESET_DONE],
    };
    for step in if is_hostile { script } else { "serve" }.split_whitespace() {
        // A host that has refused something is gone: the other steps would only fail.
        if peer.perform(step).is_err() {
            break;
        }
    }
    Ok(())
}

/// Returns the number of the socket's descriptor.
fn socket() -> RawFd {
    let number = std::env::var("PIPEWRIGHT_IPC").ok();
    number.and_then(|number| number.parse().ok()).unwrap_or(-1)
}

/// Ends the incoming direction of the socket: what the host sends from now on fails.
fn deafen() {
    // SAFETY: takes numbers.
    unsafe { libc::shutdown(socket(), libc::SHUT_RD) };
}

impl Peer {
    fn perform(&mut self, step: &str) -> io::Result<()> {
        let mut words = step.split(':');
        let name = words.next().unwrap_or_default();
        let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        let number = |at: usize, default: u64| numbers.get(at).copied().unwrap_or(default);
        let millis = |at: usize| Duration::from_millis(number(at, 0));
        match name {
            // Answers that many calls, or all, and ends with GOODBYE or the host.
            "serve" => self.serve(number(0, u64::MAX))?,
            // Takes one call, or goes on after half a second.
            "take" => drop(self.take(Duration::from_millis(500))?),
            // Takes all that comes in that time.
            "listen" => self.listen(millis(0))?,
            // Answers the oldest call with that many bytes, in parts.
            "reply" => self.reply(number(0, 0) as usize, number(1, 65536) as usize)?,
            "fail" => self.answer(FAILED, b"no")?,
            // A reply to the next call, before it was taken.
            "early" => {
                let id = self.last_id + 1 + number(0, 0);
                self.link.send(REPLY, id, b"........e", 65536)?;
            }
            // Items of the oldest call.
            "items" => self.for_call(|peer, call| {
                let body = vec![b'i'; number(1, 4) as usize];
                (0..number(0, 1)).try_for_each(|_| peer.link.send(ITEM, call.id, &body, 65536))
            })?,
            "credit" => self.for_call(|peer, call| {
                let more = (number(0, 16) as u32).to_le_bytes();
                peer.link.send(CREDIT, call.id, &more, 65536)
            })?,
            // Questions about the oldest call, that many milliseconds apart.
            "ask" => self.for_call(|peer, call| {
                for _ in 0..number(0, 1) {
                    peer.link.send(ASK, call.id, b"?", 65536)?;
                    thread::park_timeout(millis(1));
                }
                Ok(())
            })?,
            // Messages of a call that does not exist, or of the oldest (fourth number 1): only headers are written.
            "ghost" => {
                let call = self.calls.front().map_or(999_999, |call| call.id);
                let id = if number(3, 0) == 1 { call } else { 999_999 };
                for _ in 0..number(0, 1) {
                    self.ghost(id, number(1, 1 << 20), number(2, 1 << 20))?;
                }
            }
            "half-header" => self.link.write(&hostile::frame(REPLY, 0, 0, 9, b"")[..7])?,
            // The header and half of the body of a reply in the socket; a record follows in the ring.
            "half" => self.half(REPLY, number(0, 1))?,
            "half-message" => self.half(16, number(0, 1))?,
            "junk" => self.link.write(&vec![number(0, 255) as u8; number(1, 64) as usize])?,
            "kind" => self.link.send(number(0, 0) as u8, number(1, 0), b"body", 65536)?,
            "wakes" => self.storm(number(0, 1), millis(1)),
            "full-ring" => self.full_ring(millis(0), number(1, 16) as u8)?,
            "pad" => drop(self.link.record(11, 0, 0, None, b"")?),
            "head" => self.link.publish_head(number(0, 0)),
            "tail" => {
                if let Some(ours) = &self.link.ours {
                    ours.publish(TAIL, number(0, 0));
                }
            }
            "odd" => self.link.announce(),
            "handles" => self.handles(number(0, 1) as usize, number(1, 0) as u16)?,
            "linger" => self.linger(number(0, 1))?,
            // Ends one direction of the socket. Without reading, records are still taken. As the first step, `deaf`
            // begins with the last frame of the handshake.
            "deaf" => {
                self.link.ignores_socket = true;
                deafen();
            }
            "mute" => {
                // SAFETY: takes numbers.
                unsafe { libc::shutdown(self.socket, libc::SHUT_WR) };
            }
            // Bytes that are urgent.
            "urgent" => {
                for _ in 0..number(0, 1) {
                    // SAFETY: a byte that lives, and its length.
                    unsafe { libc::send(self.socket, b"!".as_ptr().cast(), 1, libc::MSG_OOB) };
                }
            }
            // Writes to stdout or stderr without a pause, and without the end of a line, beside the other steps.
            "talk" => talk(number(0, 1) as RawFd, millis(1)),
            // Words that a terminal obeys.
            "curse" => talk(2, Duration::ZERO),
            "shout" => {
                self.answer(FAILED, &b"\x1b[2J\x07\r\n\xff".repeat(number(0, 1) as usize))?
            }
            // Answers the oldest call twice.
            "twice" => self.for_call(|peer, call| {
                peer.note("replied", call.number);
                let body = call.number.to_le_bytes();
                (0..2).try_for_each(|_| peer.link.send(REPLY, call.id, &body, 65536))
            })?,
            // Answers what came in that time, the last call first.
            "reverse" => {
                self.listen(millis(0))?;
                self.calls.make_contiguous().reverse();
                while !self.calls.is_empty() {
                    self.reply(8, 65536)?;
                }
            }
            // From now on, answers each RESET with messages of these kinds.
            "resets" => self.resets = numbers.iter().map(|kind| *kind as u8).collect(),
            "rewrite" => self.rewrite(millis(0))?,
            // Changes its SLEEP (0) or its TAIL (1) without a pause, and takes nothing.
            "restless" => {
                let (until, mut at) = (Instant::now() + millis(1), 0_u64);
                while Instant::now() < until {
                    at = at.wrapping_add(1);
                    match (&self.link.ours, number(0, 0)) {
                        (Some(ours), 1) => ours.publish(TAIL, at.wrapping_mul(0x9e37_79b9) & !63),
                        _ => self.link.announce(),
                    }
                }
            }
            // Stops this process.
            "freeze" => freeze(),
            // This process ends, and its child goes on with the script.
            "heir" => heir(millis(0)),
            "goodbye" => self.link.send(GOODBYE, 0, b"", 1)?,
            "pause" => thread::park_timeout(millis(0)),
            // Closes the connection, and lives on.
            "close" => {
                // SAFETY: takes numbers.
                unsafe { libc::shutdown(self.socket, libc::SHUT_RDWR) };
                // SAFETY: closes the descriptor; nothing uses the end afterwards but calls that fail.
                unsafe { libc::dup2(self.log.as_raw_fd(), self.socket) };
            }
            // Does not end by SIGTERM.
            "stubborn" => {
                // SAFETY: SIG_IGN runs no code of this program.
                unsafe { libc::signal(Signal::TERM.number(), libc::SIG_IGN) };
            }
            "exit" => exit(number(0, 0) as i32),
            "abort" => std::process::abort(),
            other => return Err(io::Error::other(format!("unknown step: {other}"))),
        }
        Ok(())
    }

    fn note(&mut self, event: &str, number: u64) {
        let line = format!("{event} {number} {}\n", self.born);
        // One write, so that lines of several processes do not mix. Ignored: the test misses the line.
        let _ = self.log.write_all(line.as_bytes());
    }

    fn serve(&mut self, most: u64) -> io::Result<()> {
        let mut served = 0;
        while served < most {
            if let Some(call) = self.calls.front().copied() {
                self.answer(REPLY, &call.number.to_le_bytes())?;
                served += 1;
            } else if self.take(LIFE)?.is_none() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Takes one message. Returns `None` at the end, after GOODBYE and if none came in time.
    fn take(&mut self, most: Duration) -> io::Result<Option<u8>> {
        let Some(Message { kind, id, body }) = self.link.receive(most)? else { return Ok(None) };
        match kind {
            17 | 28 => {
                let number = body.first_chunk().map_or(0, |it| u64::from_le_bytes(*it));
                self.last_id = self.last_id.max(id);
                self.calls.push_back(Call { id, number });
                self.taken.push(Call { id, number });
                self.note("ran", number);
            }
            CANCEL => {
                let call = self.taken.iter().find(|call| call.id == id);
                self.note("cancel", call.map_or(u64::MAX, |call| call.number));
            }
            RESET => {
                for kind in self.resets.clone() {
                    self.link.send(kind, 0, b"", 65536)?;
                }
            }
            GOODBYE => {
                // Ignored: the host may be gone.
                let _ = self.link.send(GOODBYE, 0, b"", 1);
                return Ok(None);
            }
            _ => {}
        }
        Ok(Some(kind))
    }

    fn listen(&mut self, time: Duration) -> io::Result<()> {
        let until = Instant::now() + time;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            if self.take(left)?.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn reply(&mut self, bytes: usize, part: usize) -> io::Result<()> {
        let Some(call) = self.calls.pop_front() else { return Ok(()) };
        let mut body = call.number.to_le_bytes().to_vec();
        body.resize(bytes.max(8), 0);
        self.link.send(REPLY, call.id, &body, part)?;
        self.note("replied", call.number);
        Ok(())
    }

    fn answer(&mut self, kind: u8, body: &[u8]) -> io::Result<()> {
        let Some(call) = self.calls.pop_front() else { return Ok(()) };
        self.link.send(kind, call.id, body, 65536)?;
        self.note("replied", call.number);
        Ok(())
    }

    fn for_call(&mut self, act: impl FnOnce(&mut Peer, Call) -> io::Result<()>) -> io::Result<()> {
        if self.calls.is_empty() {
            self.take(Duration::from_millis(500))?;
        }
        self.calls.front().copied().map_or(Ok(()), |call| act(self, call))
    }

    fn ghost(&mut self, id: u64, total: u64, part: u64) -> io::Result<()> {
        let mut left = total;
        while left > 0 {
            let length = left.min(part.max(1));
            let (kind, long) = match left == total {
                true => (REPLY, (length < total).then_some(total)),
                false => (8, None),
            };
            if !self.link.record(kind, id, length as u32, long, b"")? {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            left -= length;
            // How much of it the host has taken: it is killed before it could say that at the end. A host takes all of
            // a reply to its call, and with parts of a byte the headers are most of it.
            let is_of_call = self.calls.front().is_some_and(|call| call.id == id);
            if !is_of_call && self.link.peer_tail() - self.told >= 4 << 20 {
                self.told = self.link.peer_tail();
                self.note("taken", self.told);
            }
        }
        self.link.wake();
        Ok(())
    }

    fn half(&mut self, kind: u8, records: u64) -> io::Result<()> {
        let id = self.calls.front().map_or(0, |call| call.id);
        let mut bytes = hostile::frame(kind, 0, 0, 64, &[0; 32]);
        bytes[8..16].copy_from_slice(&id.to_le_bytes());
        self.link.count_frame();
        self.link.write(&bytes)?;
        for _ in 0..records {
            self.link.record(kind, id, 8, None, &[0; 8])?;
        }
        self.link.wake();
        Ok(())
    }

    /// Sends WAKE from that many threads.
    fn storm(&mut self, threads: u64, time: Duration) {
        let bytes = hostile::frame(9, 0, 0, 0, b"").repeat(4096);
        let (socket, until) = (self.socket, Instant::now() + time);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while Instant::now() < until {
                        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
                        // SAFETY: bytes that live, and their length.
                        unsafe { libc::send(socket, bytes.as_ptr().cast(), bytes.len(), flags) };
                    }
                });
            }
        });
    }

    /// Fills the ring with records of no bytes, and then only moves HEAD.
    fn full_ring(&mut self, time: Duration, kind: u8) -> io::Result<()> {
        let (put, id) = (self.link.put(), self.calls.front().map_or(0, |call| call.id));
        let Some(ours) = &mut self.link.ours else { return Ok(()) };
        let size = ours.bytes() as u64;
        for place in ours.data().chunks_exact_mut(64) {
            place[..32].copy_from_slice(&wire::header(kind, id, 0, put, None));
        }
        let until = Instant::now() + time;
        while Instant::now() < until {
            let full = self.link.peer_tail() + size;
            if full > self.link.head {
                self.link.publish_head(full);
            }
            self.link.wake();
        }
        Ok(())
    }

    /// Publishes records, and changes their headers while the host may be reading them.
    fn rewrite(&mut self, time: Duration) -> io::Result<()> {
        let (put, id) = (self.link.put(), self.calls.front().map_or(0, |call| call.id));
        let until = Instant::now() + time;
        let mut turn = 0_u32;
        while Instant::now() < until {
            let at = self.link.head;
            if !self.link.record(ITEM, id, 32, None, &[0; 32])? {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let Some(ours) = &mut self.link.ours else { return Ok(()) };
            let at = (at % ours.bytes() as u64) as usize;
            for _ in 0..64 {
                turn = turn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let kind = [ITEM, REPLY, 8, 11][turn as usize >> 8 & 3];
                let total = (turn & 1 == 1).then_some(u64::from(turn));
                let length = if turn & 2 == 2 { turn } else { 32 };
                ours.data()[at..at + 32]
                    .copy_from_slice(&wire::header(kind, id, length, put, total));
            }
            self.link.wake();
        }
        Ok(())
    }

    /// Passes descriptors with WAKE, or with a reply that announces them.
    fn handles(&mut self, count: usize, announced: u16) -> io::Result<()> {
        let handles = (0..count).map(|_| File::open("/dev/null").map(Handle::from));
        let handles = handles.collect::<io::Result<Vec<Handle>>>()?;
        let mut bytes = hostile::frame(9, 0, 0, 0, b"");
        if announced > 0 {
            let id = self.calls.front().map_or(999_999, |call| call.id);
            bytes = hostile::frame(REPLY, 0, announced, 8, &[0; 8]);
            bytes[8..16].copy_from_slice(&id.to_le_bytes());
            self.link.count_frame();
        }
        self.link.end.send_handles(&[IoSlice::new(&bytes)], &handles).map(drop)
    }

    /// Passes a connection whose close takes that many seconds.
    fn linger(&mut self, seconds: u64) -> io::Result<()> {
        let handle = lingering(seconds)?;
        let bytes = hostile::frame(9, 0, 0, 0, b"");
        self.link.end.send_handles(&[IoSlice::new(&bytes)], &[handle])?;
        thread::park_timeout(Duration::from_secs(seconds));
        Ok(())
    }
}

/// Returns a connection whose close takes that many seconds, for the process that closes it last. The other side is at
/// the address in `PEER_HOLDER`, or with a process of its own, which reads nothing and is not killed with this one.
fn lingering(seconds: u64) -> io::Result<Handle> {
    let stream = if let Ok(address) = std::env::var("PEER_HOLDER") {
        TcpStream::connect(address)?
    } else {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        let (accepted, _) = listener.accept()?;
        let mut holder = std::process::Command::new(std::env::current_exe()?);
        holder.arg(format!("wait={}", seconds + 1)).stdin(std::os::fd::OwnedFd::from(accepted));
        holder.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        drop(holder.spawn()?);
        stream
    };
    stream.set_nonblocking(true)?;
    let junk = vec![0; 1 << 20];
    while (&stream).write(&junk).is_ok() {}
    stream.set_nonblocking(false)?;
    let linger = libc::linger { l_onoff: 1, l_linger: seconds as i32 };
    // SAFETY: a socket, and an option of that type and length.
    unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as u32,
        )
    };
    Ok(Handle::from(std::os::fd::OwnedFd::from(stream)))
}

/// Writes to that descriptor, beside everything else; without a time, writes one line with what a terminal obeys.
fn talk(to: RawFd, time: Duration) {
    let write = move |bytes: &[u8]| {
        // SAFETY: bytes that live, and their length.
        unsafe { libc::write(to, bytes.as_ptr().cast(), bytes.len()) }
    };
    if time.is_zero() {
        write(b"\x1b]0;owned\x07 \x1b[2J\x9b2J last words\n");
        return;
    }
    let until = Instant::now() + time;
    thread::spawn(move || while Instant::now() < until && write(&[b'x'; 65536]) > 0 {});
}

/// Stops this process.
fn freeze() {
    // SAFETY: takes a number.
    unsafe { libc::raise(Signal::STOP.number()) };
}

/// Ends this process; its child lives on for that time.
fn heir(time: Duration) {
    #[expect(clippy::disallowed_methods, reason = "a worker may do it")]
    // SAFETY: the child uses what no other thread of this process holds: only the end of its life has one.
    if unsafe { libc::fork() } != 0 {
        exit(0);
    }
    thread::spawn(move || {
        thread::park_timeout(time);
        exit(9);
    });
}

const HELLO: u8 = 1;
const REJECT: u8 = 2;
const MEMORY: u8 = 3;

/// Performs `shake-STEP:NUMBER:NUMBER...`, and lives on for a while.
fn perform_handshake(script: &str) -> io::Result<()> {
    let mut words = script.split_whitespace().next().unwrap_or_default().split(':');
    let name = words.next().unwrap_or_default();
    let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
    let number = |at: usize, default: u64| numbers.get(at).copied().unwrap_or(default);
    let mut end = handle_channel::inherited("PIPEWRIGHT_IPC")?;
    match name {
        // Connections whose close takes seconds: that many with a frame of that kind.
        "shake-linger" => {
            let handles = (0..number(1, 1)).map(|_| lingering(number(0, 5)));
            let handles = handles.collect::<io::Result<Vec<Handle>>>()?;
            match number(2, 0) {
                // As the memory.
                0 => memory(&mut end, 1 << 20, &handles)?,
                // With a HELLO that announces one.
                1 => pass(&mut end, &frame(HELLO, 1, b"pipewright-ipc\n"), &handles)?,
                // With something that is no frame.
                2 => pass(&mut end, &[0xff; 64], &handles)?,
                // With half of a frame, and nothing else until the deadline.
                _ => pass(&mut end, &frame(HELLO, 0, b"pipewright-ipc\n")[..9], &handles)?,
            }
            // Only the host has them now.
            drop(handles);
        }
        // A right HELLO, a byte at a time.
        "shake-crumbs" => {
            for byte in hello(&mut end) {
                hostile::send(&mut end, &[byte]);
                thread::park_timeout(Duration::from_millis(number(0, 20)));
            }
        }
        // Texts that are long, or that a terminal obeys.
        "shake-words" => {
            let value =
                ["x", "\u{1b}[2J\u{7}", "\u{9b}2J\u{202e}", "\0"][number(1, 0) as usize & 3];
            let value = value.repeat(number(2, 1) as usize);
            let body = match number(0, 0) {
                0 => format!("rejected\nby=worker\nfield={value}\nhost={value}\nworker={value}\n"),
                _ => format!("pipewright-ipc\nversion={value}\nservice={value}\n"),
            };
            let kind = if number(0, 0) == 0 { REJECT } else { HELLO };
            hostile::send(&mut end, &frame(kind, 0, body.as_bytes()));
        }
        // Frames without end.
        "shake-flood" => {
            let bytes = frame(number(0, 9) as u8, 0, b"pipewright-ipc\n").repeat(1000);
            (0..1000).for_each(|_| hostile::send(&mut end, &bytes));
        }
        // Memory that is none, with that many bytes by its own words.
        "shake-object" => {
            let handle = match number(0, 0) {
                0 => Handle::from(File::open("/dev/zero")?),
                1 => Handle::from(File::open("/tmp")?),
                2 => Handle::from(OwnedFd::from(UnixStream::pair()?.0)),
                3 => unsealed()?,
                4 => Handle::from(io::stdin().as_fd().try_clone_to_owned()?),
                _ => Written::create(ShmOptions { bytes: 64 << 10, prefault: false })?
                    .handle()
                    .try_clone()?,
            };
            memory(&mut end, number(1, 64 << 10), &[handle])?;
        }
        other => return Err(io::Error::other(format!("unknown step: {other}"))),
    }
    thread::park_timeout(Duration::from_secs(8));
    Ok(())
}

fn frame(kind: u8, handles: u16, body: &[u8]) -> Vec<u8> {
    hostile::frame(kind, 0, handles, body.len() as u32, body)
}

/// Returns the answer to the host's HELLO: the same, with all that a worker can do.
fn hello(end: &mut ChannelEnd) -> Vec<u8> {
    let (_, hello) = hostile::receive_frame(end).unwrap_or_default();
    let lines: Vec<&str> = hello.lines().filter(|line| !line.starts_with("can=")).collect();
    let can = "can=calls.v1 streams.v1 handles.v1 shm.v1";
    hostile::text(HELLO, &format!("{}\n{can}\n", lines.join("\n")))
}

/// Shakes hands up to MEMORY, and passes that.
fn memory(end: &mut ChannelEnd, bytes: u64, handles: &[Handle]) -> io::Result<()> {
    let hello = hello(end);
    hostile::send(end, &hello);
    // That of the host; without shared memory there is no MEMORY, and this one is a wrong frame.
    let _ = hostile::receive_frame(end);
    let body = format!("memory\nbytes={bytes}\nproof=1\n");
    pass(end, &frame(MEMORY, 1, body.as_bytes()), handles)
}

fn pass(end: &mut ChannelEnd, bytes: &[u8], handles: &[Handle]) -> io::Result<()> {
    end.send_handles(&[IoSlice::new(bytes)], handles).map(drop)
}

/// Returns memory that everybody may change.
fn unsealed() -> io::Result<Handle> {
    // SAFETY: a name, and a flag.
    let number = unsafe { libc::memfd_create(c"peer".as_ptr(), libc::MFD_CLOEXEC) };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was created for this.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(number) });
    file.set_len(4096 + (64 << 10))?;
    Ok(Handle::from(file))
}
