//! The CPU time that other processes use during a measurement.

use std::time::Instant;

use pipewright_os::host::host_info::{self, CpuTime};

/// The start of a measurement during which other processes are to be noticed.
#[derive(Debug, Clone, Copy)]
pub struct CpuUse {
    start: Instant,
    before: CpuTime,
}

impl CpuUse {
    /// Starts to count; `None` where the system does not tell.
    ///
    /// # Platform
    /// Linux: `/proc/stat` and `/proc/self/stat`, in steps of 10 ms. Elsewhere always `None`.
    #[must_use]
    pub fn start() -> Option<CpuUse> {
        Some(CpuUse { start: Instant::now(), before: host_info::cpu_time()? })
    }

    /// Returns the share of all CPU time since the start that other processes used, from 0 to 1.
    #[must_use]
    pub fn others_share(&self) -> Option<f64> {
        Some(share(self.before, host_info::cpu_time()?))
    }

    /// Returns the number of processors that other processes kept busy since the start: 0.1 is a tenth of one.
    #[must_use]
    pub fn others_processors(&self) -> Option<f64> {
        let others = host_info::cpu_time()?.others.saturating_sub(self.before.others);
        Some(others.as_secs_f64() / self.start.elapsed().as_secs_f64().max(1e-9))
    }
}

fn share(before: CpuTime, after: CpuTime) -> f64 {
    let all = after.all.saturating_sub(before.all).as_secs_f64();
    let others = after.others.saturating_sub(before.others).as_secs_f64();
    if all > 0.0 { (others / all).min(1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_use_by_others_is_a_share_where_the_system_tells_it() {
        let start = CpuUse::start();
        assert_eq!(start.is_some(), cfg!(target_os = "linux"));
        let Some(start) = start else { return };
        assert!(start.others_share().is_some_and(|share| (0.0..=1.0).contains(&share)));
        assert!(start.others_processors().is_some_and(|count| count >= 0.0));
    }
}
