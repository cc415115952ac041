//! Handshakes that break rules: the first step of a script, after which nothing else of it is performed.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use pipewright_os::base::handle::Handle;
use pipewright_os::channel::handle_channel::{self, ChannelEnd};
use pipewright_os::channel::shm::{ShmOptions, Written};
use pipewright_tests::hostile;

use super::lingering;

const HELLO: u8 = 1;
const REJECT: u8 = 2;
const MEMORY: u8 = 3;

/// Performs `shake-STEP:NUMBER:NUMBER...`, and lives on for a while.
pub(super) fn perform(script: &str) -> io::Result<()> {
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
