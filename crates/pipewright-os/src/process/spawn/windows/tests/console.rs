//! A child on a console of its own. Wine's is a stub: the child runs, and no byte reaches the pipes.

use super::{act, code, ends};
use crate::process::pty::{OpenProblem, PtySize, open};
use crate::process::spawn::{Group, Plan, UnixOptions, spawn};

#[test]
fn a_child_on_a_console_of_its_own_starts_and_ends() {
    let size = PtySize { rows: 30, cols: 100 };
    let (pty, child_end) = match open(size) {
        Ok(opened) => opened,
        Err(error) if error.problem == OpenProblem::Missing => {
            return crate::base::skipped::skipped(crate::base::skipped::Need::Windows, error);
        }
        Err(error) => panic!("{error}"),
    };
    assert_eq!(pty.window_size().unwrap(), size);
    let unix = UnixOptions { group: Group::Session, ..UnixOptions::default() };
    let child = act("exit", "7");
    let plan = Plan { terminal: Some(&child_end), unix: &unix, ..child.plan() };
    let exit = spawn(&plan).unwrap();
    assert!(ends(&exit));
    assert_eq!(code(&exit), 7);
    // Closes the console: the output ends, however much there was.
    let reader = pty.reader().unwrap();
    drop(child_end.release());
    drop(pty);
    let mut output = Vec::with_capacity(4096);
    while reader.read_spare(&mut output).unwrap() > 0 {
        output.reserve(4096);
    }
}
