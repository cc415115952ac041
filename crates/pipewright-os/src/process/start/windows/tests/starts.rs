//! Starts and trees of children.

use std::ffi::OsString;
use std::os::windows::io::AsRawHandle as _;
use std::path::Path;

use super::{Note, TestChild, act, cmd, code, ends, plan, until};
use crate::base::signal::Signal;
use crate::process::child::{ChildHandle, Containment};
use crate::process::contain::windows::{is_in_job, kill_on_close_job};
use crate::process::open::{Opened, ProcessState};
use crate::process::start::wide::oracle::{QuotingRules, split};
use crate::process::start::wide::{Arg, command_line};
use crate::process::start::{
    ChildStdio, Contain, Env, Plan, UnixOptions, WindowsOptions, parent_exit, spawn,
};
use crate::process::tree::Descendants;

#[test]
fn exit_codes_are_unchanged() {
    assert_eq!(code(&cmd("exit 3")), 3);
    for code in [0, 1, 259, 0xC000_0005, u32::MAX] {
        let exit = act("exit", code.to_string()).start();
        let ended = exit.wait().unwrap();
        assert_eq!(ended.status.raw(), code);
        assert_eq!(exit.try_wait().unwrap(), Some(ended), "later calls return the same");
        let usage = ended.usage.unwrap();
        assert!(usage.user + usage.system < std::time::Duration::from_secs(600), "{usage:?}");
        eprintln!("{code:#x}: {usage:?}");
    }
    let hex = act("exit", 0xC000_0005_u32.to_string()).start().wait().unwrap();
    assert_eq!(hex.status.to_string(), "exit code: 0xc0000005");
}

#[test]
fn a_kill_ends_a_child_and_does_nothing_to_an_ended_one() {
    let exit = act("sleep", "").start();
    assert_eq!(exit.try_wait().unwrap(), None);
    assert!(exit.signal(Signal::KILL).unwrap());
    assert_eq!(code(&exit), 1);
    assert!(!exit.signal(Signal::KILL).unwrap());
    assert!(!exit.signal(Signal::TERM).unwrap());
}

#[test]
fn what_cannot_be_sent_is_unsupported() {
    let exit = act("sleep", "").start();
    for signal in [Signal::TERM, Signal::INT, Signal::STOP, Signal::CONT, Signal::USR1] {
        let error = exit.signal(signal).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::Unsupported, "{signal}");
    }
    exit.signal(Signal::KILL).unwrap();
}

#[test]
fn the_child_gets_the_given_environment() {
    let mut act = act("environment", "A=1,Ä=2,B=,PIPEWRIGHT_X=,path=x,SystemRoot=C:\\windows");
    act.env.push(("a".into(), "0".into()));
    act.env.push(("A".into(), "1".into()));
    act.env.push(("ä".into(), "2".into()));
    act.env.retain(|(name, _)| !name.eq_ignore_ascii_case("path"));
    act.env.push(("PATH".into(), "x".into()));
    assert_eq!(act.code(), 0);
}

#[test]
fn the_child_starts_in_the_given_directory() {
    let dir = std::env::temp_dir().canonicalize().unwrap();
    let plain = dir.to_str().unwrap().trim_start_matches(r"\\?\").to_owned();
    let act = act("directory", plain.clone());
    for dir in [Path::new(&plain), &dir] {
        let exit = spawn(&Plan { current_dir: Some(dir), ..act.plan() }).unwrap();
        assert_eq!(code(&exit), 0, "{dir:?}");
    }
}

#[test]
fn a_relative_program_is_taken_from_the_childs_directory() {
    let unix = UnixOptions::default();
    let args = ["/c".into(), "exit 4".into()];
    let system = Path::new(r"C:\windows");
    let plan = Plan { current_dir: Some(system), ..plan(r".\system32\cmd", &args, &unix) };
    assert_eq!(code(&spawn(&plan).unwrap()), 4);
}

#[test]
fn a_raw_argument_reaches_cmd_unchanged() {
    let note = super::Note::new("raw");
    let command = format!(r#"echo "a  b"> "{}""#, note.0.display());
    let args = ["/d".into(), "/c".into(), OsString::from(command)];
    let windows = WindowsOptions { raw_args: vec![2], ..WindowsOptions::default() };
    let unix = UnixOptions::default();
    let plan = Plan { windows: Some(&windows), ..plan("cmd", &args, &unix) };
    assert_eq!(code(&spawn(&plan).unwrap()), 0);
    assert_eq!(note.text().trim_end(), r#""a  b""#);
}

#[test]
fn a_parent_without_stdio_can_start_children() {
    for number in ["0", "-1", "-2", "16777208"] {
        assert_eq!(act("no stdio", number).code(), 5, "{number}");
    }
}

#[test]
fn a_child_is_given_null() {
    let null = crate::base::stdio::null().unwrap();
    let act = act("exit", "6");
    let stdio = [ChildStdio::Handle(&null); 3];
    let exit = spawn(&Plan { stdio, env: Env::Exactly(&act.env), ..act.plan() }).unwrap();
    assert_eq!(code(&exit), 6);
}

/// Proves that the shell's own function splits the lines as the tests of `wide` say. Few programs call that
/// function; most have a C library, which has rules of its own.
#[test]
fn the_system_splits_ten_thousand_command_lines_as_expected() {
    use proptest::prelude::*;
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;

    #[link(name = "shell32")]
    unsafe extern "system" {
        fn CommandLineToArgvW(line: *const u16, count: *mut i32) -> *mut *mut u16;
    }
    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn LocalFree(memory: *mut core::ffi::c_void) -> *mut core::ffi::c_void;
    }
    let units = prop_oneof![
        6 => prop::sample::select("\\\" \ta=/%^&".encode_utf16().collect::<Vec<u16>>()),
        1 => 1..=u16::MAX,
    ];
    let arg = prop::collection::vec(units, 0..12);
    let vectors = prop::collection::vec(arg, 0..6);
    let mut runner = TestRunner::deterministic();
    for _ in 0..10_000 {
        let args = vectors.new_tree(&mut runner).unwrap().current();
        let plain: Vec<Arg> = args.iter().cloned().map(Arg::Plain).collect();
        let program: Vec<u16> = r"C:\p q".encode_utf16().collect();
        let mut line = command_line(&program, &plain, false).unwrap();
        let expected = split(&line, QuotingRules::Shell);
        line.push(0);
        let mut count = 0;
        // SAFETY: a string that ends with NUL, a live number.
        let found = unsafe { CommandLineToArgvW(line.as_ptr(), &raw mut count) };
        assert!(!found.is_null());
        let text = |index: usize| -> Vec<u16> {
            // SAFETY: there are that many of them.
            let place = unsafe { found.add(index) };
            // SAFETY: as above.
            let text = unsafe { *place };
            let at = |unit: usize| {
                // SAFETY: requested one after the other, up to the NUL and not past it.
                let place = unsafe { text.add(unit) };
                // SAFETY: as above.
                unsafe { *place }
            };
            (0..).map(at).take_while(|unit| *unit != 0).collect()
        };
        let texts: Vec<Vec<u16>> = (0..count as usize).map(text).collect();
        // SAFETY: made by the call above, and not used any more.
        unsafe { LocalFree(found.cast()) };
        assert_eq!(texts[1..], args, "{}", String::from_utf16_lossy(&line));
        assert_eq!(texts, expected);
    }
}

fn contained(act: &TestChild) -> ChildHandle {
    spawn(&Plan { contain: Some(Contain::tree(true)), ..act.plan() }).unwrap()
}

fn text(note: &Note) -> &str {
    note.0.to_str().unwrap()
}

fn opened(note: &Note) -> Opened {
    Opened::open(note.number()).unwrap()
}

fn runs(opened: &Opened) -> bool {
    opened.state().unwrap() == ProcessState::Running
}

#[test]
fn end_kills_and_counts_the_whole_tree() {
    let note = Note::new("tree");
    let exit = contained(&act("parent", text(&note)));
    assert_eq!(exit.containment(), Containment::Job);
    let child = opened(&note);
    let contained = exit.tree().unwrap();
    assert!(contained.is_alive() && runs(&child));
    let mut members = Vec::new();
    contained.collect(&mut members).unwrap();
    assert!(members.iter().any(|member| member.pid() == child.member().pid()), "{members:?}");
    assert!(members.iter().all(|member| member.pid() != exit.pid()));
    let killed = contained.end();
    assert!(killed >= 1, "{killed}");
    assert!(!contained.is_alive() && !runs(&child));
    assert_eq!(contained.end(), killed, "later calls return the same");
    assert_eq!(code(&exit), 1);
}

/// A job that has processes can refuse a child because of them.
#[test]
fn a_job_that_refuses_a_child_is_replaced() {
    let job = |replace| kill_on_close_job(replace).unwrap().as_raw_handle();
    let mut tied_child = act("sleep", "");
    tied_child.unix.kill_on_parent_exit = Some(parent_exit());
    let child = tied_child.start();
    let first = job(false);
    let second = job(true);
    assert_ne!(first, second);
    assert_eq!([job(false), job(true)], [second; 2], "it has no processes");
    let later = tied_child.start();
    for exit in [child, later] {
        assert!(exit.signal(Signal::KILL).unwrap());
        assert_eq!(code(&exit), 1);
    }
}

#[test]
fn an_orphan_of_a_tree_is_in_it() {
    let note = Note::new("orphan");
    let exit = contained(&act("parent of a parent", text(&note)));
    assert_eq!(code(&exit), 0);
    let child = opened(&note);
    assert!(runs(&child) && exit.tree().unwrap().is_alive());
    assert_eq!(exit.tree().unwrap().end(), 1);
    assert!(!runs(&child));
}

#[test]
fn a_tree_ends_with_its_handle() {
    let note = Note::new("handle");
    let exit = contained(&act("parent", text(&note)));
    let child = opened(&note);
    let own = Opened::open(exit.pid()).unwrap();
    drop(exit);
    until("the tree lives on", || !runs(&child) && !runs(&own));
}

#[test]
fn a_nested_tree_ends_with_the_process_that_holds_it() {
    let note = Note::new("nested");
    let exit = contained(&act("parent of a tree", text(&note)));
    let child = opened(&note);
    assert!(runs(&child));
    // Only the process that holds the inner tree.
    exit.signal(Signal::KILL).unwrap();
    until("the inner tree lives on", || !runs(&child));
}

#[test]
fn a_tree_ends_with_the_process_that_holds_it() {
    let note = Note::new("holder");
    let exit = act("parent of a tree", text(&note)).start();
    let child = opened(&note);
    assert!(runs(&child));
    exit.signal(Signal::KILL).unwrap();
    until("the tree lives on", || !runs(&child));
}

#[test]
fn a_child_ends_with_its_parent_but_its_own_child_does_not() {
    let note = Note::new("kill on parent exit");
    let exit = act("parent of a child that ends with it", text(&note)).start();
    let grandchild = opened(&note);
    let mut below = Descendants::default();
    below.collect(&exit);
    let tied_child =
        below.members().iter().find(|it| it.pid() != grandchild.member().pid()).unwrap();
    exit.signal(Signal::KILL).unwrap();
    until("the child lives on", || !tied_child.is_alive());
    assert!(runs(&grandchild), "only the child ends with its parent");
    grandchild.signal(Signal::KILL).unwrap();
}

#[test]
fn a_child_breaks_away_only_if_the_job_allows_it() {
    for allow_breakaway in [false, true] {
        let note = Note::new("breakaway");
        let windows = WindowsOptions { allow_breakaway, ..WindowsOptions::default() };
        let act = act("breaks away", text(&note));
        let plan =
            Plan { windows: Some(&windows), contain: Some(Contain::tree(true)), ..act.plan() };
        let exit = spawn(&plan).unwrap();
        let found = code(&exit);
        const ACCESS_DENIED: u32 = 5;
        if !allow_breakaway {
            assert_eq!(found, ACCESS_DENIED);
        } else if found == ACCESS_DENIED && is_in_job().unwrap() {
            crate::base::skipped::skipped(
                crate::base::skipped::Need::Windows,
                "a job around all of this allows no breakaway",
            );
        } else {
            let away = opened(&note);
            assert_eq!((found, exit.tree().unwrap().end()), (0, 0));
            assert!(runs(&away), "it has left");
            away.signal(Signal::KILL).unwrap();
        }
    }
}

#[test]
fn only_descendants_are_found() {
    let note = Note::new("descendants");
    let exit = act("parent", text(&note)).start();
    let unrelated = act("sleep", "").start();
    let child = opened(&note);
    let mut below = Descendants::default();
    assert!(below.collect(&exit) >= 1);
    let has = |below: &Descendants, pid| below.members().iter().any(|it| it.pid() == pid);
    assert!(has(&below, child.member().pid()));
    assert!(!has(&below, unrelated.pid()) && !has(&below, exit.pid()));
    assert_eq!(below.collect(&exit), 0, "each is found once");

    // The parent has ended, and its handle is open, so its children are still found.
    exit.signal(Signal::KILL).unwrap();
    assert!(ends(&exit));
    let mut below = Descendants::default();
    below.stop_and_collect(&exit, 64);
    assert!(has(&below, child.member().pid()));
    for member in below.members() {
        assert!(member.signal(Signal::KILL).unwrap());
    }
    until("it lives on", || below.any_alive().is_none());
    unrelated.signal(Signal::KILL).unwrap();
}
