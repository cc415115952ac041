//! Limits of a job object.

use pipewright::{Containment, ErrorKind, LimitKind, LimitMechanism, Limits, Outcome, TreeSlot};
use pipewright_test_macros::watched_test;
use pipewright_tests::skip::{Need, skipped};

use super::puppet;

#[watched_test]
fn a_limit_of_a_job_holds_or_is_an_error() {
    let none = Limits::new();
    let limits = [
        (LimitKind::Memory, none.memory_max(256 << 20)),
        // Not a whole number of pages.
        (LimitKind::Memory, none.memory_max(2_000_000_000)),
        (LimitKind::Pids, none.pids_max(10)),
        (LimitKind::Cpu, none.cpu_max(1.5)),
    ];
    for (kind, limits) in limits {
        match puppet(["exit=3"]).limits(limits).capture() {
            Ok(capture) => {
                assert_eq!((capture.outcome, capture.status.code()), (Outcome::Exited, Some(3)));
                let held = capture.limits.unwrap();
                assert_eq!((held.limits, held.mechanism), (limits, Some(LimitMechanism::Job)));
                assert_eq!(capture.containment, Containment::Job);
            }
            Err(error) => {
                let ErrorKind::LimitUnavailable { limit } = error.kind() else { panic!("{error}") };
                assert_eq!(limit.limit, kind);
                skipped(Need::Windows, error);
            }
        }
    }
}

#[watched_test]
fn limits_that_no_job_has_are_errors() {
    let limits = Limits::new().memory_max(256 << 20);
    for (kind, limits) in [
        (LimitKind::Swap, Limits::new().memory_swap_max(0)),
        (LimitKind::OomGroup, limits.oom_group()),
    ] {
        let error = puppet(["exit=0"]).limits(limits).status().unwrap_err();
        let ErrorKind::LimitUnavailable { limit } = error.kind() else { panic!("{error}") };
        assert!(limit.limit == kind || limit.limit == LimitKind::Memory, "{error}");
    }
}

#[watched_test]
fn a_job_without_its_limits_says_which_ones_are_missing() {
    let limits = Limits::new().memory_max(256 << 20).memory_swap_max(0).pids_max(10).best_effort();
    let capture = puppet(["exit=3"]).limits(limits).capture().unwrap();
    assert_eq!(capture.status.code(), Some(3));
    let held = capture.limits.unwrap();
    assert!(held.missing.iter().any(|missing| missing.limit == LimitKind::Swap), "{held:?}");
    assert_eq!(held.limits.kinds().count() + held.missing.len(), 3);
    assert!(capture.tree_usage.is_some());
}

#[watched_test]
fn a_slot_keeps_no_limit_for_the_next_command() {
    let slot = TreeSlot::new().unwrap();
    let limits = Limits::new().memory_max(256 << 20).pids_max(10).best_effort();
    for _ in 0..2 {
        let capture = puppet(["exit=3"]).limits(limits).contain_in(&slot).capture().unwrap();
        assert_eq!((capture.status.code(), capture.containment), (Some(3), Containment::Job));
        let held = capture.limits.unwrap();
        assert_eq!(held.limits.kinds().count() + held.missing.len(), 2, "{held:?}");
        assert!(capture.tree_usage.is_some());

        let capture = puppet(["exit=4"]).contain_in(&slot).capture().unwrap();
        assert_eq!((capture.status.code(), capture.limits), (Some(4), None));
    }
}
