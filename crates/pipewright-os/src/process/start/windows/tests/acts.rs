//! The acts of children.

use std::fs::File;
use std::io::Read as _;
use std::os::windows::io::FromRawHandle as _;
use std::path::Path;
use std::process::exit;
use std::time::{Duration, Instant};
use std::{env, fs, ptr};

use windows_sys::Win32::System::Console::{
    AllocConsole, GetConsoleCP, STD_ERROR_HANDLE, STD_INPUT_HANDLE, STD_OUTPUT_HANDLE, SetStdHandle,
};

use super::{ACT, WITH, act as child, code, plan};
use crate::base::handle::Handle;
use crate::base::handle::open_handles;
use crate::base::signal::Signal;
use crate::base::stdio::{console_err, console_in, console_out};
use crate::base::wait;
use crate::process::open::ProcessState;
use crate::process::start::{Contain, Group, Inherit, Plan, UnixOptions, parent_exit, spawn};

#[test]
#[ignore = "a child of the others"]
fn act() {
    let Ok(name) = env::var(ACT) else { return };
    let with = env::var_os(WITH).unwrap_or_default();
    let text = with.to_string_lossy().into_owned();
    match name.as_str() {
        "exit" => exit(text.parse::<u32>().unwrap() as i32),
        "sleep" => {
            let end = Instant::now() + Duration::from_secs(120);
            drop(wait::any(&mut [], Some(end)));
        }
        "read handle" => read_handle(&text),
        "environment" => environment(&text),
        "directory" => exit(i32::from(env::current_dir().unwrap() != Path::new(&with))),
        "no stdio" => without_stdio(&text),
        "asks a group to end" => ask_group(),
        "leak" => leak(),
        "parent" => parent(&text),
        "parent of a child that ends with it" => parent_of_tied(&text),
        "parent of a tree" => parent_of_tree(&text),
        "parent of a parent" => {
            // Its child starts another one and ends.
            exit(child("parent that leaves", text).code() as i32)
        }
        "parent that leaves" => {
            note(&text, child("sleep", "").start().pid());
            exit(0)
        }
        "breaks away" => {
            let windows = crate::process::start::WindowsOptions {
                breakaway_from_job: true,
                ..Default::default()
            };
            let sleeper = child("sleep", "");
            match spawn(&Plan { windows: Some(&windows), ..sleeper.plan() }) {
                Ok(exit) => note(&text, exit.pid()),
                Err(error) => exit(error.source.raw_os_error().unwrap_or(-1)),
            }
            exit(0)
        }
        other => panic!("no act {other}"),
    }
    exit(0)
}

fn note(path: &str, number: u32) {
    fs::write(path, format!("{number}\n")).unwrap();
}

/// Exits with 7 if the handle with that number is a file with the text after it.
fn read_handle(text: &str) {
    let (number, expected) = text.split_once(' ').unwrap();
    let handle = ptr::without_provenance_mut(number.parse::<usize>().unwrap());
    // SAFETY: the number was passed to this process for this; if it is not open, reading fails.
    let mut file = std::mem::ManuallyDrop::new(unsafe { File::from_raw_handle(handle) });
    let mut found = String::new();
    let is_it = file.read_to_string(&mut found).is_ok() && found == expected;
    exit(if is_it { 7 } else { 8 })
}

/// Exits with the number of variables that differ from `NAME=VALUE,NAME=VALUE`; an empty value means that
/// the variable does not exist.
fn environment(text: &str) {
    let differs = |entry: &&str| {
        let (name, value) = entry.split_once('=').unwrap();
        env::var(name).unwrap_or_default() != value
    };
    exit(text.split(',').filter(differs).count() as i32)
}

/// Starts a child with stdio of that number, under which nothing is open.
fn without_stdio(number: &str) {
    let value = ptr::without_provenance_mut(number.parse::<isize>().unwrap() as usize);
    for which in [STD_INPUT_HANDLE, STD_OUTPUT_HANDLE, STD_ERROR_HANDLE] {
        // SAFETY: values that nothing else uses.
        unsafe { SetStdHandle(which, value) };
    }
    if console_in().is_ok() || console_out().is_ok() || console_err().is_ok() {
        exit(6)
    }
    exit(child("exit", "5").code() as i32)
}

/// Exits with 0 if as many handles are open after many starts, most of which fail, as before.
fn leak() {
    let unix = UnixOptions::default();
    let file = || Handle::from(File::open(env::current_exe().unwrap()).unwrap());
    let list = [(file(), None), (file(), None)];
    let twice = child("exit", "0");
    let missing = plan(r"C:\no such program.exe", &[], &unix);
    let directory = plan(r"C:\windows", &[], &unix);
    let failing = |turn: usize| {
        let plan = if turn % 2 == 0 { missing } else { directory };
        let contain = (turn % 3 == 0).then(|| Contain::tree(false));
        spawn(&Plan { inherit: Inherit::List(&list), contain, ..plan }).unwrap_err();
    };
    let starting = |turn: usize| {
        let contain = (turn % 3 == 0).then(|| Contain::tree(false));
        let exit = spawn(&Plan { inherit: Inherit::List(&list), contain, ..twice.plan() }).unwrap();
        assert_eq!(code(&exit), 0);
    };
    // Make first what is made once and kept.
    (0..6).for_each(failing);
    (0..6).for_each(starting);
    let before = handles();
    for turn in 0..200 {
        (0..9).for_each(failing);
        starting(turn);
    }
    let after = handles();
    eprintln!("{before} handles before, {after} after");
    exit(i32::from(after > before))
}

fn handles() -> usize {
    open_handles().unwrap().len()
}

/// Exits with the code of a child in a group of its own that was asked to end; 99 if there is no suitable
/// console.
fn ask_group() {
    // SAFETY: no arguments.
    let has_one = unsafe { GetConsoleCP() } != 0;
    // SAFETY: no arguments.
    if !has_one && unsafe { AllocConsole() } == 0 {
        exit(99)
    }
    let note = super::Note::new("group");
    let mut sleeper = child("parent", note.0.clone());
    sleeper.unix.group = Group::Own;
    let started = sleeper.start();
    // It runs, and so receives events.
    let below = note.number();
    match started.signal_group(Signal::TERM) {
        Ok(sent) => assert!(sent),
        Err(error) => {
            eprintln!("{error}");
            // Ignored: the processes that are left end with the job that this one is in.
            let _ = started.signal(Signal::KILL);
            exit(99)
        }
    }
    let code = code(&started);
    let below = crate::process::open::Opened::open(below);
    super::until("the event goes to the whole group", || {
        below.as_ref().is_ok_and(|it| it.state().unwrap() != ProcessState::Running)
    });
    drop(note);
    exit(code as i32)
}

/// Starts a child that sleeps, and waits for it.
fn parent(text: &str) {
    let exit = child("sleep", "").start();
    note(text, exit.pid());
    code(&exit);
}

fn parent_of_tied(text: &str) {
    let mut tied_child = child("parent", text);
    tied_child.unix.kill_on_parent_exit = Some(parent_exit());
    code(&tied_child.start());
}

fn parent_of_tree(text: &str) {
    let plan = child("parent", text);
    let exit = spawn(&Plan { contain: Some(Contain::tree(true)), ..plan.plan() }).unwrap();
    code(&exit);
}
