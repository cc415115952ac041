//! Jobs, and descendants.

use std::os::windows::io::AsRawHandle as _;

use super::{Note, TestChild, act, code, ends, until};
use crate::base::signal::Signal;
use crate::process::child::{ChildHandle, Containment};
use crate::process::contain::windows::{is_in_job, kill_on_close_job};
use crate::process::open::{Opened, ProcessState};
use crate::process::spawn::{Contain, Plan, WindowsOptions, parent_exit, spawn};
use crate::process::tree::Descendants;

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
