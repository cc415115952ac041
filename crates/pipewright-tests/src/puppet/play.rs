//! The act `play=SEED,KIND,OPS`: a script that writes both streams, closes them, reads and ends, in any order.
//!
//! The operations are separated by full stops: `o100` and `e100` write to stdout and stderr, `p100` and `q100` in small
//! writes, `z100` to both in turn; `O`, `E` and `I` close a stream; `r100` reads that much of stdin, `R` reads all of
//! it, `c` copies it to stdout; `s5` waits for that many milliseconds; `b5` leaves a process that holds the streams for
//! so long, and `w5` one that then writes to stdout; `y` writes without an end; `T` ignores SIGTERM; `x3` exits, and
//! `k9` ends by that signal.

use std::time::{Duration, Instant};
use std::{io, thread};

use pipewright_tests::bodies::{LATE, Said};
use pipewright_tests::pace;

/// Plays a script.
pub(crate) fn play(value: &str) -> io::Result<()> {
    let mut parts = value.splitn(3, ',');
    let mut part = || parts.next().unwrap_or_default();
    let (seed, kind, ops) = (part(), part(), part());
    let seed = seed.parse().map_err(io::Error::other)?;
    let kind = kind.chars().next().unwrap_or('b');
    let mut player =
        Player { said: [1, 2].map(|stream| Said::new(seed, stream, kind)), at: [0; 2] };
    // As in most programs: Rust ignores it.
    // SAFETY: sets the default action.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    ops.split('.').filter(|op| !op.is_empty()).try_for_each(|op| player.perform(op))
}

struct Player {
    said: [Said; 2],
    at: [usize; 2],
}

impl Player {
    fn perform(&mut self, op: &str) -> io::Result<()> {
        let (name, number) = op.split_at(1);
        let number: usize =
            if number.is_empty() { 0 } else { number.parse().map_err(io::Error::other)? };
        match name {
            "o" => self.say(0, number, 1 << 20),
            "e" => self.say(1, number, 1 << 20),
            "p" => self.say(0, number, 1000),
            "q" => self.say(1, number, 1000),
            "z" => self.in_turn(number),
            "O" => close(1),
            "E" => close(2),
            "I" => close(0),
            "r" => read(number, |_| Ok(())),
            "R" => read(usize::MAX, |_| Ok(())),
            "c" => read(usize::MAX, |bytes| write_all(1, bytes)),
            "s" => {
                sleep(number);
                Ok(())
            }
            "b" => fork(|| sleep(number)),
            "w" => fork(|| {
                sleep(number);
                // Its reader may be gone.
                let _ = write_all(1, LATE);
            }),
            "y" => loop {
                self.say(0, 100_000, 1 << 20)?;
            },
            "T" => {
                // SAFETY: SIG_IGN runs no code of this program.
                unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
                Ok(())
            }
            "x" => std::process::exit(number as i32),
            "k" => end_by(number as i32),
            _ => Err(io::Error::other("unknown operation")),
        }
    }

    /// Writes the next bytes of a stream, at most `piece` at a time.
    fn say(&mut self, stream: usize, count: usize, piece: usize) -> io::Result<()> {
        let mut bytes = Vec::new();
        self.said[stream].copy(self.at[stream], count, &mut bytes);
        self.at[stream] += count;
        bytes.chunks(piece).try_for_each(|piece| write_all(stream as i32 + 1, piece))
    }

    fn in_turn(&mut self, count: usize) -> io::Result<()> {
        let (mut left, mut piece) = (count, 1);
        while left > 0 {
            piece = (piece * 3).min(left);
            self.say(0, piece, piece)?;
            self.say(1, piece, piece)?;
            left -= piece;
        }
        Ok(())
    }
}

fn sleep(millis: usize) {
    let end = Instant::now() + pace::millis(millis as u64);
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|it| !it.is_zero()) {
        thread::park_timeout(left.max(Duration::from_micros(1)));
    }
}

/// Returns the result of a call again and again, while a signal interrupts it or it would block.
fn again(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        let done = call();
        if done >= 0 {
            return Ok(done as usize);
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock => thread::park_timeout(Duration::from_millis(1)),
            _ => return Err(error),
        }
    }
}

/// Writes without a buffer, and to the number itself, which may be closed later.
fn write_all(fd: i32, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: the bytes are live.
        let done = again(|| unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) })?;
        bytes = &bytes[done..];
    }
    Ok(())
}

/// Reads that much of stdin, or less if it ends.
fn read(mut left: usize, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut buffer = vec![0_u8; left.min(1 << 16)];
    while left > 0 {
        let most = left.min(buffer.len());
        // SAFETY: the buffer is live, and has room for so much.
        let done = again(|| unsafe { libc::read(0, buffer.as_mut_ptr().cast(), most) })?;
        if done == 0 {
            return Ok(());
        }
        take(&buffer[..done])?;
        left -= done;
    }
    Ok(())
}

fn close(fd: i32) -> io::Result<()> {
    // SAFETY: nothing of this program uses it from here on.
    match unsafe { libc::close(fd) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Leaves a process that does something and ends.
#[expect(
    clippy::disallowed_methods,
    reason = "the puppet is small, and the new process has its streams"
)]
fn fork(body: impl FnOnce()) -> io::Result<()> {
    // SAFETY: the program has one thread.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            body();
            // SAFETY: ends this process at once.
            unsafe { libc::_exit(0) }
        }
        _ => Ok(()),
    }
}

/// Ends by a signal, without a core file.
fn end_by(signal: i32) -> io::Result<()> {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live struct.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
    // SAFETY: sets the default action, which replaces Rust's own handlers.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    // SAFETY: takes numbers.
    unsafe { libc::kill(libc::getpid(), signal) };
    sleep(10_000);
    Err(io::Error::other("the signal did not end it"))
}
