//! A console, a group, a process by its number.

use super::act;
use crate::base::signal::Signal;
use crate::process::child::Containment;
use crate::process::open::{Opened, ProcessState};
use crate::process::spawn::{Contain, Group, Plan, WindowsOptions, exec, spawn};

#[test]
fn own_group_gets_ctrl_break_if_there_is_a_console() {
    for group in [Group::Own, Group::Session] {
        let mut act = act("sleep", "");
        act.unix.group = group;
        let exit = act.start();
        assert!(exit.is_group_leader());
        assert_eq!(exit.containment(), Containment::Group);
        match exit.signal_group(Signal::TERM) {
            Ok(sent) => {
                eprintln!("{group:?}: a Ctrl-Break was sent: {sent}");
                assert_eq!(group, Group::Own, "a detached child has no console");
            }
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
                eprintln!("{group:?}: {error}");
            }
        }
        // Ignored: the event may have ended it.
        let _ = exit.signal(Signal::KILL);
        assert!(super::ends(&exit));
    }
}

#[test]
fn ctrl_break_ends_a_group_that_shares_the_console() {
    const STATUS_CONTROL_C_EXIT: u32 = 0xc000_013a;
    let act = act("asks a group to end", "");
    // Contained, so that no process is left if none receives the event.
    let exit = spawn(&Plan { contain: Some(Contain::tree(true)), ..act.plan() }).unwrap();
    match super::code(&exit) {
        99 => crate::base::skipped::skipped(
            crate::base::skipped::Need::Windows,
            "there is no console that takes a Ctrl-Break",
        ),
        code => assert_eq!(code, STATUS_CONTROL_C_EXIT, "{code:#x}"),
    }
}

#[test]
fn flags_reach_the_child_and_do_no_harm() {
    let act = act("exit", "3");
    for windows in [
        WindowsOptions { no_window: true, ..Default::default() },
        WindowsOptions { creation_flags: 0x0000_4000, ..Default::default() },
        WindowsOptions { show_window: Some(0), force_quotes: true, ..Default::default() },
        WindowsOptions { breakaway_from_job: true, ..Default::default() },
    ] {
        let exit = spawn(&Plan { windows: Some(&windows), ..act.plan() }).unwrap();
        assert_eq!(super::code(&exit), 3, "{windows:?}");
    }
}

#[test]
fn exec_is_unsupported() {
    let act = act("exit", "3");
    let error = exec(&act.plan()).unwrap_err();
    assert_eq!(error.source.kind(), std::io::ErrorKind::Unsupported);
}

#[test]
fn a_process_by_its_number_is_that_process_or_an_error() {
    let own = Opened::open(std::process::id()).unwrap();
    assert_eq!(own.state().unwrap(), ProcessState::Running);
    assert_eq!(own.member().pid(), std::process::id());
    let kind = |pid| Opened::open(pid).unwrap_err().kind();
    assert_eq!(kind(0), std::io::ErrorKind::InvalidInput);
    assert_eq!(kind(u32::MAX), std::io::ErrorKind::InvalidInput);
    assert_eq!(kind(0x7fff_fff0), std::io::ErrorKind::NotFound);
    // The system would open the process with the number below.
    assert_eq!(kind(std::process::id() + 1), std::io::ErrorKind::NotFound);

    let exit = act("sleep", "").start();
    let opened = Opened::open(exit.pid()).unwrap();
    assert_eq!(opened.state().unwrap(), ProcessState::Running);
    assert!(opened.signal(Signal::KILL).unwrap());
    assert_eq!(super::code(&exit), 1);
    let ProcessState::Ended(ended) = opened.state().unwrap() else { panic!("it has ended") };
    assert_eq!(ended.status.raw(), 1, "every process with a handle gets it");
    assert!(!opened.signal(Signal::KILL).unwrap());
    // Still that process: no other can have the number as long as the handle is open.
    assert!(matches!(
        Opened::open(exit.pid()).map(|it| it.state()),
        Ok(Ok(ProcessState::Ended(_))) | Err(_)
    ));
}
