//! The handles that a child has.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::os::windows::io::AsHandle as _;

use super::{Note, act, code};
use crate::base::handle::{Handle, copy_of, inheritable};
use crate::base::pipe;
use crate::base::signal::Signal;
use crate::base::wait::{self, Slot};
use crate::process::spawn::{BadInput, ChildStdio, Inherit, Plan, Step, spawn};
use std::os::windows::io::{AsRawHandle as _, FromRawHandle as _};
use std::time::{Duration, Instant};

fn file(note: &Note, text: &str) -> File {
    let mut options = File::options();
    let mut file =
        options.read(true).write(true).create(true).truncate(true).open(&note.0).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.rewind().unwrap();
    file
}

#[test]
fn only_listed_handles_are_inherited_under_their_numbers() {
    let note = Note::new("handles");
    let file = file(&note, "secret");
    // As careless code leaves them.
    let stray = Handle::from(copy_of(file.as_raw_handle(), true).unwrap());
    let list = [(Handle::from(file), None)];
    let given = |number: i64| act("read handle", format!("{number} secret"));
    let inherit = Inherit::List(&list);

    let act = given(list[0].0.number());
    let exit = spawn(&Plan { inherit, ..act.plan() }).unwrap();
    assert!(!inheritable(list[0].0.as_handle()).unwrap(), "for the moment of the start only");
    assert_eq!(code(&exit), 7);

    let mut rewound = File::from(list[0].0.try_clone().unwrap());
    for (inherit, expected) in [(inherit, 8), (Inherit::List(&[]), 8), (Inherit::AllAnd(&list), 7)]
    {
        rewound.rewind().unwrap();
        let act = given(stray.number());
        let exit = spawn(&Plan { inherit, ..act.plan() }).unwrap();
        assert_eq!(code(&exit), expected, "{inherit:?}");
    }
    assert!(inheritable(stray.as_handle()).unwrap(), "as it was");
}

/// A pipe that another child holds open does not end with the child that it was made for.
#[test]
fn inherit_all_does_not_take_handles_of_another_start() {
    let sleeper = act("sleep", "");
    for _ in 0..8 {
        let pipes: Vec<_> = (0..4).map(|_| pipe::pair(Default::default()).unwrap()).collect();
        let (taker, readers) = std::thread::scope(|scope| {
            let taking = scope.spawn(|| {
                let all = Inherit::AllAnd(&[]);
                spawn(&Plan { inherit: all, ..sleeper.plan() }).unwrap()
            });
            let readers: Vec<_> = pipes
                .into_iter()
                .map(|(reader, writer)| {
                    let (act, writer) = (act("exit", "0"), Handle::from(writer));
                    let [stdin, _, stderr] = act.plan().stdio;
                    let stdio = [stdin, ChildStdio::Handle(&writer), stderr];
                    assert_eq!(code(&spawn(&Plan { stdio, ..act.plan() }).unwrap()), 0);
                    reader
                })
                .collect();
            (taking.join().unwrap(), readers)
        });
        for reader in readers {
            let until = Some(Instant::now() + Duration::from_secs(20));
            let mut slot = [Slot::Read(reader, Vec::new())];
            loop {
                let done = wait::any(&mut slot, until).unwrap();
                assert_eq!(done, 1, "the pipe is held open");
                match std::mem::take(&mut slot[0]) {
                    Slot::ReadDone(_, _, Ok(0)) => break,
                    Slot::ReadDone(reader, bytes, Ok(_)) => slot[0] = Slot::Read(reader, bytes),
                    other => panic!("{other:?}"),
                }
            }
        }
        assert!(taker.signal(Signal::KILL).unwrap());
        taker.wait().unwrap();
    }
}

#[test]
fn a_bad_list_names_its_entry() {
    let note = Note::new("bad list");
    let first = Handle::from(file(&note, ""));
    let act = act("exit", "0");
    // SAFETY: forgotten below, so that it is closed once.
    let second = unsafe { Handle::from_raw_handle(first.as_raw_handle()) };
    let list = [(first, None), (second, None)];
    let error = spawn(&Plan { inherit: Inherit::List(&list), ..act.plan() }).unwrap_err();
    assert_eq!(error.step, Step::Check(BadInput::InheritTwice(1)));
    let [(first, _), (second, _)] = list;
    std::mem::forget(second);
    let list = [(first, Some(5))];
    let error = spawn(&Plan { inherit: Inherit::List(&list), ..act.plan() }).unwrap_err();
    assert_eq!(error.source.to_string(), "`inherit_fd_as` is for Unix only");
}

#[test]
fn two_thousand_starts_of_which_most_fail_leave_no_handle() {
    assert_eq!(act("leak", "").code(), 0);
}
