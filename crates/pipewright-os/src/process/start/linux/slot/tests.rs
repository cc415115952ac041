//! Tests of a plan as the supervisor reads it, and of slots in a fork.

use std::ffi::{CStr, OsString};
use std::path::Path;

use super::super::{ChildSetup, Lists, child_setup, start, start_uncontained};
use super::request::{Handles, PlanWords};
use crate::base::generation::tests::in_a_fork;
use crate::base::signal::Signal;
use crate::process::nolibc::message::{self, CURRENT_DIR_HANDLE, field, flag, group};
use crate::process::nolibc::steps::Stdio;
use crate::process::start::layout::Layout;
use crate::process::start::layout::tests::plan;
use crate::process::start::{
    Env, Group, Plan, Resource, ResourceLimit, TreeSlot, UnixOptions, begin, spawn,
};

#[test]
fn the_supervisor_reads_the_plan_that_was_written() {
    const BASE: u64 = 1 << 40;
    let args: [OsString; 2] = ["x".into(), "long argument".into()];
    let limit = ResourceLimit { resource: Resource::OpenFiles, soft: Some(9), hard: None };
    let unix = UnixOptions {
        group: Group::Join(77),
        umask: Some(0o27),
        nice: Some(-3),
        limits: vec![limit],
        default_signals: vec![Signal::INT, Signal::TERM],
        ..UnixOptions::default()
    };
    let env = [("A".into(), "1".into())];
    let plan = Plan {
        env: Env::Exactly(&env),
        current_dir: Some(Path::new("relative")),
        ..plan("cc", &args, &unix)
    };
    let layout = Layout::new(&plan).unwrap();
    let handles = Handles::of(&plan, None).unwrap();
    let words = PlanWords { plan: &plan, layout: &layout, may_retry: true, ignores_sigchld: false };
    let mut bytes = Vec::new();
    words.encode(&handles, BASE, &mut bytes);
    let strings_at = bytes.len() as u64;
    bytes.extend_from_slice(layout.bytes());
    let words: Vec<u64> =
        bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect();

    let read = message::Plan::new(&words, BASE);
    let text = |address: u64| {
        assert!(address >= BASE + strings_at);
        let at = usize::try_from(address - BASE).unwrap();
        CStr::from_bytes_until_nul(&bytes[at..]).unwrap().to_str().unwrap().to_owned()
    };
    let array = |field: usize| -> Vec<String> {
        let words = read.array(field).unwrap().iter();
        words.take_while(|word| **word != 0).map(|word| text(*word)).collect()
    };
    assert_eq!(array(field::ARGV), ["cc", "x", "long argument"]);
    assert_eq!(array(field::ENVP), ["A=1"]);
    assert_eq!(array(field::CANDIDATES), ["/a/cc", "./cc", "/b c/cc"]);
    assert_eq!(text(read.word(field::CURRENT_DIR)), "relative");
    let flags = flag::SEARCHES | flag::MAY_RETRY | flag::HAS_UMASK | flag::HAS_NICE;
    assert_eq!(read.word(field::FLAGS) & flags, flags);
    assert!(!read.has(flag::IGNORES_SIGCHLD));
    assert_eq!((read.word(field::GROUP), read.word(field::GROUP_ID)), (group::JOIN, 77));
    assert_eq!((read.word(field::UMASK), read.word(field::NICE) as i64), (0o27, -3));
    let number = u64::from(Resource::OpenFiles.number());
    let limits = read.list(field::LIMITS, field::LIMIT_COUNT, 3).unwrap();
    assert_eq!(limits, [number, 9, libc::RLIM64_INFINITY]);
    let signals = [libc::SIGINT, libc::SIGPIPE, libc::SIGTERM];
    let signals = signals.into_iter().fold(0, |set, number| set | 1 << (number - 1));
    assert_eq!(read.word(field::DEFAULT_SIGNALS), signals);
    let targets = read.list(field::TARGETS, field::TARGET_COUNT, 1).unwrap();
    assert_eq!(targets.last(), Some(&CURRENT_DIR_HANDLE));
}

#[test]
fn a_standard_handle_that_the_host_does_not_have_is_closed_in_the_child() {
    let args: [OsString; 2] = ["-c".into(), "[ ! -e /proc/self/fd/0 ]".into()];
    let unix = UnixOptions::default();
    let plan = plan("/bin/sh", &args, &unix);
    let (layout, lists) = (Layout::new(&plan).unwrap(), Lists::of(&plan).unwrap());
    let mut setup = child_setup(&plan, &layout, &lists);
    let succeeds = |setup: &ChildSetup<'_>| {
        start(setup, start_uncontained).unwrap().wait().unwrap().status.success()
    };
    assert!(!succeeds(&setup));
    setup.steps.stdio[0] = Stdio::Closed;
    assert!(succeeds(&setup));
}

#[test]
fn a_fork_cannot_use_a_slot_and_does_not_end_it() {
    let Ok(slot) = TreeSlot::new(drop) else { return };
    let unix = UnixOptions::default();
    let plan = Plan { slot: Some(&slot), ..plan("/bin/true", &[], &unix) };
    let run = || spawn(&plan).map(|child| child.wait().map(|ended| ended.status.success()));
    assert!(run().unwrap().unwrap());
    assert!(in_a_fork(|| {
        let is_refused = run().is_err();
        // SAFETY: the fork's own copy of the value. The fork ends without another use of it.
        drop(unsafe { std::ptr::read(&raw const slot) });
        is_refused
    }));
    assert!(run().unwrap().unwrap(), "the slot still works");
}

#[test]
fn a_fork_cannot_finish_a_start_and_takes_no_answer_from_its_parent() {
    let Ok(slot) = TreeSlot::new(drop) else { return };
    let unix = UnixOptions::default();
    let plan = Plan { slot: Some(&slot), ..plan("/bin/true", &[], &unix) };
    let start = begin(&plan).unwrap();
    assert!(in_a_fork(|| {
        // SAFETY: the fork's own copy of the value. The fork ends without another use of it.
        unsafe { std::ptr::read(&raw const start) }.finish(&plan).is_err()
    }));
    assert!(in_a_fork(|| {
        // SAFETY: as above.
        drop(unsafe { std::ptr::read(&raw const start) });
        true
    }));
    let child = start.finish(&plan).unwrap();
    assert!(child.wait().unwrap().status.success());
}
