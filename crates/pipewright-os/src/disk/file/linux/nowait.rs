//! The results of reads and writes that must not wait. Found by trial, because no call reports them.

use std::fs;
use std::io::{IoSlice, IoSliceMut};
use std::time::{Duration, Instant};

use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, futimens};
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2};
use rustix::time::{ClockId, clock_getres};

use super::super::{NowaitReads, NowaitWrites};

/// More than two ticks of the slowest clock that Linux can be built with (`CONFIG_HZ=100`).
const TICKS: Duration = Duration::from_millis(25);
/// Longer than a lock is held or a request waits for space.
const MOMENT: Duration = Duration::from_millis(2);
/// The number of rounds in which the timestamps have to be the cause.
const ROUNDS: usize = 3;
/// The number of attempts: the clock may tick between the timestamps and the write, or a lock may be held.
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

/// Returns true if a read is performed, possibly after some attempts, because a lock may be held.
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
        // A write that waits for the timestamps waits until they are updated. Other waits are shorter.
        if lasts(Tried::Done, TICKS, try_one)? || !lasts(Tried::WouldWait, MOMENT, try_one)? {
            return Some(NowaitWrites::Taken);
        }
    }
    let tick = clock_getres(ClockId::RealtimeCoarse).try_into().ok()?;
    Some(NowaitWrites::WaitForTimes { tick })
}

/// Returns true if every attempt ends this way for that long.
fn lasts(end: Tried, time: Duration, try_one: impl Fn() -> Option<Tried>) -> Option<bool> {
    let began = Instant::now();
    loop {
        // Checked before the write, which may take a while.
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

/// Returns the outcome. `None` for an error that proves nothing.
fn tried(result: Result<usize, Errno>) -> Option<Tried> {
    match result {
        Ok(_) => Some(Tried::Done),
        Err(Errno::AGAIN) => Some(Tried::WouldWait),
        Err(Errno::OPNOTSUPP) => Some(Tried::Refused),
        Err(_) => None,
    }
}

/// Sets the file's modification time to now. `None` if this process may not set it.
fn change_times(file: &fs::File) -> Option<()> {
    let special = |nsec| Timespec { tv_sec: 0, tv_nsec: nsec };
    let times =
        Timestamps { last_access: special(UTIME_OMIT), last_modification: special(UTIME_NOW) };
    futimens(file, &times).ok()
}
