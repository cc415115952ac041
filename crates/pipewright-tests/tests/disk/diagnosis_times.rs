//! Writes that the kernel defers because they change the times of a file: every run reports them alike.

use std::time::Duration;

use pipewright_disk::diagnosis::{
    DiagnoseOptions, Measured, Reason, Remedy, Report, Test, Verdict, Work, diagnose,
};
use pipewright_disk::{Filesystem, NowaitWrites};
use pipewright_test_macros::isolated_test;
use pipewright_tests::mounts;
use pipewright_tests::skip::{Lack, Need, skipped};

use super::folder;

const WORKS: [Work; 4] = [Work::Overwrite, Work::Preallocated, Work::Extend, Work::Hole];

/// Returns the measured writes of these kinds.
fn writes(report: &Report, direct: bool, works: &[Work]) -> Vec<Measured> {
    let test = |work| Test { asynchronous: true, direct, work };
    works.iter().map(|work| report.measured(test(*work)).expect("it was made").clone()).collect()
}

/// Checks XFS: it refuses a write that must not wait and changes the times (from Linux 6.0 on).
fn check_xfs(report: &Report) -> Result<(), Lack> {
    let in_place = &WORKS[..2];
    for (direct, works, remedy) in
        [(true, in_place, Remedy::AioOrLazytime), (false, &WORKS[..], Remedy::Lazytime)]
    {
        for found in writes(report, direct, works) {
            let Some(NowaitWrites::WaitForTimes { tick }) = found.evidence.nowait_writes else {
                let detail = format!("XFS does not put them off: {:?}", found.evidence);
                return Err(Lack::new(Need::Kernel("6.0"), detail));
            };
            let (millisecond, slowest) = (Duration::from_millis(1), Duration::from_millis(10));
            assert!((millisecond..=slowest).contains(&tick), "{tick:?}");
            assert_eq!(found.verdict, Verdict::Partly, "{:?}", found.evidence);
            let finding = found.findings.iter().find(|it| it.reason == Reason::FileTimes);
            let finding = finding.unwrap_or_else(|| panic!("{found:?}"));
            assert_eq!(finding.remedy, remedy);
            assert!(direct || finding.effect.is_none(), "{finding:?}");
            if let Some(effect) = finding.effect {
                // It has no threads that could do it.
                assert_ne!(effect.verdict, Verdict::Workers, "{effect:?}");
            }
        }
    }
    for found in writes(report, true, &[Work::Extend]) {
        assert_eq!(found.findings[0].reason, Reason::Extending, "{found:?}");
    }
    Ok(())
}

/// Checks ext4: a direct write that must not wait changes the times inside the call, and a buffered one is refused.
fn check_ext4(report: &Report) {
    for direct in [true, false] {
        let nowait = if direct { NowaitWrites::Taken } else { NowaitWrites::Refused };
        for found in writes(report, direct, &WORKS) {
            assert_eq!(found.evidence.nowait_writes, Some(nowait), "{:?}", found.evidence);
            let is_times = found.findings.iter().any(|it| it.reason == Reason::FileTimes);
            assert!(!is_times, "{found:?}");
        }
    }
}

#[isolated_test]
fn writes_that_change_the_times_are_judged_alike_in_every_run() {
    let folder = folder();
    if let Err(lack) = mounts::private() {
        return lack.skip();
    }
    if pipewright_tests::skip::is_forced_off("io_uring") {
        return skipped(Need::IoUring, "there is no io_uring in this build");
    }
    for (kind, bytes) in [("xfs", 512 << 20), ("ext4", 64 << 20)] {
        let disk = match mounts::loop_mount(folder.path(), kind, bytes, "rw") {
            Ok(disk) => disk,
            Err(lack) => {
                lack.skip();
                continue;
            }
        };
        // Few enough to fit between two ticks, and many enough that some do not; both are fewer than the
        // queue of the disk takes.
        for requests in [20, 60, 120] {
            let options = DiagnoseOptions { requests, block_bytes: 16 << 10, ..Default::default() };
            let report = diagnose(disk.path(), &options).unwrap();
            if report.filesystem != Some(Filesystem::Xfs.name()) {
                check_ext4(&report);
            } else if let Err(lack) = check_xfs(&report) {
                return lack.skip();
            }
        }
    }
}
