//! What becomes of a read or a write that must not wait: tried out, as nothing tells.

use std::fs;
use std::io::{IoSlice, IoSliceMut};
use std::time::{Duration, Instant};

use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, futimens};
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2};
use rustix::time::{ClockId, clock_getres};

use super::super::{NowaitReads, NowaitWrites};

/// Longer than two ticks of the slowest clock that Linux can be built with (`CONFIG_HZ=100`).
const TICKS: Duration = Duration::from_millis(25);
/// Longer than a lock is held, or a request waits for room.
const MOMENT: Duration = Duration::from_millis(2);
/// So often it has to be the times.
const ROUNDS: usize = 3;
/// A tick may pass between the times and the write, or a lock be held.
const TRIES: usize = 64;

pub(in crate::disk::file) fn nowait_reads(
    file: &fs::File,
    to: &mut [u8],
    offset: u64,
) -> Option<NowaitReads> {
    if is_read(file, to, offset)? {
        return Some(NowaitReads::Taken);
    }
    let page = to.get_mut(..crate::base::memory::page_bytes());
    let is_page_read = page.map_or(Some(false), |page| is_read(file, page, offset))?;
    Some(if is_page_read { NowaitReads::OfOnePage } else { NowaitReads::Refused })
}

/// Whether a read is done, and be it after some tries: a lock may be held.
fn is_read(file: &fs::File, to: &mut [u8], offset: u64) -> Option<bool> {
    for _ in 0..TRIES {
        match read(file, to, offset)? {
            Tried::Done => return Some(true),
            Tried::Refused => return Some(false),
            Tried::WouldWait => {}
        }
    }
    Some(false)
}

pub(in crate::disk::file) fn nowait_writes(
    file: &fs::File,
    block: &[u8],
    offset: u64,
) -> Option<NowaitWrites> {
    let try_one = || write(file, block, offset);
    for _ in 0..ROUNDS {
        let mut tries = (0..TRIES).map(|_| change_times(file).and_then(|()| try_one()));
        if tries.find(|tried| *tried != Some(Tried::WouldWait))?? == Tried::Refused {
            return Some(NowaitWrites::Refused);
        }
        // What waits for the times waits until they are changed; what waits for anything else does not.
        if lasts(Tried::Done, TICKS, try_one)? || !lasts(Tried::WouldWait, MOMENT, try_one)? {
            return Some(NowaitWrites::Taken);
        }
    }
    let tick = clock_getres(ClockId::RealtimeCoarse).try_into().ok()?;
    Some(NowaitWrites::WaitForTimes { tick })
}

/// Whether every try ends so, for that long.
fn lasts(end: Tried, time: Duration, try_one: impl Fn() -> Option<Tried>) -> Option<bool> {
    let began = Instant::now();
    loop {
        // Looked at before the write, which may take its time.
        let is_last = began.elapsed() > time;
        match try_one()? {
            found if found != end => return Some(false),
            _ if is_last => return Some(true),
            _ => {}
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tried {
    Done,
    WouldWait,
    Refused,
}

fn read(file: &fs::File, to: &mut [u8], offset: u64) -> Option<Tried> {
    tried(preadv2(file, &mut [IoSliceMut::new(to)], offset, ReadWriteFlags::NOWAIT))
}

fn write(file: &fs::File, block: &[u8], offset: u64) -> Option<Tried> {
    tried(pwritev2(file, &[IoSlice::new(block)], offset, ReadWriteFlags::NOWAIT))
}

/// `None`: it failed in a way that says nothing.
fn tried(result: Result<usize, Errno>) -> Option<Tried> {
    match result {
        Ok(_) => Some(Tried::Done),
        Err(Errno::AGAIN) => Some(Tried::WouldWait),
        Err(Errno::OPNOTSUPP) => Some(Tried::Refused),
        Err(_) => None,
    }
}

/// Has the file say that it was changed in this tick. `None`: that is not for us to do.
fn change_times(file: &fs::File) -> Option<()> {
    let special = |nsec| Timespec { tv_sec: 0, tv_nsec: nsec };
    let times =
        Timestamps { last_access: special(UTIME_OMIT), last_modification: special(UTIME_NOW) };
    futimens(file, &times).ok()
}
