//! Tests of a plan as the supervisor reads it, and of slots in a fork.

use std::ffi::{CStr, OsStr, OsString};
use std::path::Path;

use super::request::{Handles, PlanWords};
use crate::base::generation::tests::in_a_fork;
use crate::process::contain::linux::message::{self, CURRENT_DIR_HANDLE, field, flag, group, step};
use crate::process::spawn::layout::Layout;
use crate::process::spawn::linux::child::resource_number;
use crate::process::spawn::{
    ChildStdio, Env, Group, Inherit, Plan, Resource, ResourceLimit, Search, Step, TreeSlot,
    UnixOptions, begin, spawn, steps,
};

fn plan<'a>(program: &'a str, args: &'a [OsString], unix: &'a UnixOptions) -> Plan<'a> {
    Plan {
        program: OsStr::new(program),
        search: Search::Path(OsStr::new("/a::/b c")),
        arg0: None,
        args,
        env: Env::Exactly(&[]),
        current_dir: None,
        stdio: [ChildStdio::Inherit; 3],
        inherit: Inherit::List(&[]),
        contain: None,
        limits: None,
        slot: None,
        foreground: None,
        terminal: None,
        unix,
        windows: None,
    }
}

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
    assert!(read.is_whole());
    let text = |address: u64| {
        assert!(address >= BASE + strings_at);
        let at = usize::try_from(address - BASE).unwrap();
        CStr::from_bytes_until_nul(&bytes[at..]).unwrap().to_str().unwrap().to_owned()
    };
    let array = |field: usize| -> Vec<String> {
        let first = usize::try_from((read.word(field) - BASE) / 8).unwrap();
        words[first..].iter().take_while(|word| **word != 0).map(|word| text(*word)).collect()
    };
    assert_eq!(array(field::ARGV), ["cc", "x", "long argument"]);
    assert_eq!(array(field::ENVP), ["A=1"]);
    let candidates: Vec<_> = (0..).map_while(|index| read.candidate(index)).map(text).collect();
    assert_eq!(candidates, ["/a/cc", "./cc", "/b c/cc"]);
    assert_eq!(text(read.word(field::CURRENT_DIR)), "relative");
    let flags = flag::SEARCHES | flag::MAY_RETRY | flag::HAS_UMASK | flag::HAS_NICE;
    assert_eq!(read.word(field::FLAGS) & flags, flags);
    assert!(!read.has(flag::IGNORES_SIGCHLD));
    assert_eq!((read.word(field::GROUP), read.word(field::GROUP_ID)), (group::JOIN, 77));
    assert_eq!((read.word(field::UMASK), read.word(field::NICE) as i64), (0o27, -3));
    let number = u64::from(resource_number(Resource::OpenFiles));
    assert_eq!(read.limit(0), Some([number, 9, libc::RLIM64_INFINITY]));
    assert_eq!(read.limit(1), None);
    let targets: Vec<_> = (0..).map_while(|index| read.target(index)).collect();
    assert_eq!(targets.len(), read.handle_count());
    assert_eq!(targets.last(), Some(&CURRENT_DIR_HANDLE));
}

#[test]
fn the_steps_of_both_programs_have_the_same_numbers() {
    for (number, expected) in [
        (step::CREATE, Step::Create),
        (step::GROUP, Step::Group),
        (step::with_index(step::LIMIT, 3), Step::Limit(3)),
        (step::NICE, Step::Nice),
        (step::CURRENT_DIR, Step::CurrentDir),
        (step::with_index(step::STDIO, 2), Step::Stdio(2)),
        (step::with_index(step::INHERIT, 7), Step::Inherit(7)),
        (step::EXEC, Step::Exec),
        (step::TERMINAL, Step::Terminal),
        (step::TREE_LIMITS, Step::TreeLimits),
    ] {
        assert_eq!(steps::step_of(number), expected);
    }
    assert_eq!(message::STOP_PENDING, super::STOP_PENDING);
    assert_eq!([group::SAME, group::OWN, group::SESSION], [0, 1, 3]);
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
