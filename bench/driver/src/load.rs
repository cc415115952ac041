//! How busy the machine was with others while a cell ran.

use std::fs;
use std::time::Instant;

use crate::Result;

/// The unit of the kernel's CPU times, on every processor that Rust runs on: proc(5), `USER_HZ`.
const TICKS_PER_SECOND: f64 = 100.0;

/// Shorter than this, one tick more or less would decide.
const LEAST_SECONDS: f64 = 0.2;

/// What all processors had done, and what we had, at one moment.
pub(crate) struct Mark {
    at: Instant,
    busy: u64,
    own: u64,
}

impl Mark {
    pub(crate) fn now() -> Result<Mark> {
        Ok(Mark { at: Instant::now(), busy: busy_ticks()?, own: own_ticks()? })
    }

    /// How many processors were busy with others since: 0.1 is a tenth of one. A time too short to
    /// tell counts as quiet.
    pub(crate) fn foreign_cores(&self) -> Result<f64> {
        let seconds = self.at.elapsed().as_secs_f64();
        if seconds < LEAST_SECONDS {
            return Ok(0.0);
        }
        let busy = busy_ticks()? - self.busy;
        let own = own_ticks()? - self.own;
        Ok(busy.saturating_sub(own) as f64 / TICKS_PER_SECOND / seconds)
    }
}

/// The time that all processors were not idle, stolen time included.
fn busy_ticks() -> Result<u64> {
    let stat = fs::read_to_string("/proc/stat")?;
    let line = stat.lines().next().ok_or("/proc/stat is empty")?;
    let ticks: Vec<u64> = line.split_whitespace().skip(1).flat_map(str::parse).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; guest time is part of user time.
    let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = ticks[..] else {
        return Err("/proc/stat has an unknown form".into());
    };
    Ok(user + nice + system + irq + softirq + steal)
}

/// The time of this process and of all descendants that have been waited for.
fn own_ticks() -> Result<u64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name in parentheses may hold anything; after it come state, and 10 more before utime.
    let (_, rest) = stat.rsplit_once(')').ok_or("/proc/self/stat has an unknown form")?;
    let ticks: Vec<u64> = rest.split_whitespace().skip(11).take(4).flat_map(str::parse).collect();
    if ticks.len() != 4 {
        return Err("/proc/self/stat has an unknown form".into());
    }
    Ok(ticks.iter().sum())
}
