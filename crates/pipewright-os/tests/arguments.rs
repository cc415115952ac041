//! Random arguments reach a real child unchanged.
//!
//! This suite has no test harness, which would parse the child's arguments as its own. The child is this program, and
//! prints its arguments. On Windows a batch file also passes them on to it.
//!
//! The suite covers the whole path from the plan to the arguments of a Rust program, for ten thousand vectors. One
//! start passes many of them, because a start takes a tenth of a second under Wine. On Windows the path includes std's
//! parser and Wine's handling of a command line. The library's unit tests check as many vectors against the documented
//! rules of both parsers that Windows programs use.

#![allow(clippy::unwrap_used, reason = "a panic is the way this test fails")]

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{Read as _, Write as _};
use std::path::Path;

use pipewright_os::base::handle::Handle;
use pipewright_os::base::pipe;
use pipewright_os::process::child::ChildHandle;
use pipewright_os::process::start::{ChildStdio, Env, Inherit, Plan, Search, UnixOptions, spawn};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

const CHILD: &str = "PIPEWRIGHT_TESTS_ARGUMENTS";
const STARTS: usize = 200;
/// Vectors for each start: `cmd.exe` takes at most 8191 characters.
const VECTORS: usize = 50;
/// A separator between two vectors, so that no argument can move from one to the next unnoticed.
const SEPARATOR: &str = "between";

fn main() {
    if env::var_os(CHILD).is_some() {
        return print_arguments();
    }
    // Tools ask for a list of tests.
    if env::args().any(|arg| arg == "--list") {
        return println!("arguments: test");
    }
    let program = env::current_exe().unwrap();
    let mut vectors = Vectors::new(r#"\" '=%^&|<>()!,;*?$`a"#);
    for _ in 0..STARTS {
        let args = vectors.next();
        assert_eq!(received_arguments(&program, &args), args);
    }
    println!("{} argument vectors reached a program", STARTS * VECTORS);
    if cfg!(windows) {
        through_a_batch_file(&program);
    }
}

fn print_arguments() {
    let mut stdout = std::io::stdout();
    for arg in env::args_os().skip(1) {
        stdout.write_all(arg.as_encoded_bytes()).unwrap();
        stdout.write_all(b"\0").unwrap();
    }
}

fn through_a_batch_file(program: &Path) {
    let dir = env::temp_dir().join(format!("pipewright arguments {}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let script = dir.join("pass on.cmd");
    std::fs::write(&script, format!("@\"{}\" %*\r\n", program.display())).unwrap();
    let mut failed = Vec::new();
    let mut vectors = Vectors::new(BATCH);
    for _ in 0..STARTS {
        let args = vectors.next();
        let found = received_arguments(&script, &args);
        if found != args {
            failed.push((args, found));
        }
    }
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(
        failed.is_empty(),
        "{} of {STARTS}: {:#?}",
        failed.len(),
        &failed[..failed.len().min(5)]
    );
    let count = STARTS * VECTORS;
    println!("{count} argument vectors reached a program through a batch file");
}

/// Characters with a meaning for `cmd.exe`, except `%`: Wine fails on the only way to write it, which is std's.
const BATCH: &str = r#"\" '=^&|<>()!,;*?$`a"#;

/// A generator of arguments, mostly of these characters.
struct Vectors {
    runner: TestRunner,
    strategy: BoxedStrategy<Vec<String>>,
}

impl Vectors {
    fn new(characters: &str) -> Vectors {
        let characters: Vec<char> = characters.chars().collect();
        let letter = "[a-z\u{e9}\u{20ac}\u{1f600}]".prop_map(first);
        let any = prop_oneof![6 => prop::sample::select(characters), 1 => letter];
        let arg = prop::collection::vec(any, 0..10).prop_map(String::from_iter);
        let strategy = prop::collection::vec(arg, 0..6).boxed();
        Vectors { runner: TestRunner::deterministic(), strategy }
    }

    /// Returns the arguments for one start.
    fn next(&mut self) -> Vec<OsString> {
        let mut all = Vec::new();
        for _ in 0..VECTORS {
            all.extend(self.strategy.new_tree(&mut self.runner).unwrap().current());
            all.push(SEPARATOR.to_owned());
        }
        all.into_iter().map(OsString::from).collect()
    }
}

fn first(text: String) -> char {
    text.chars().next().unwrap()
}

/// Starts a child with these arguments and returns the arguments that it received.
fn received_arguments(program: &Path, args: &[OsString]) -> Vec<OsString> {
    let mut env: Vec<(OsString, OsString)> = env::vars_os().collect();
    env.push((CHILD.into(), "1".into()));
    let (mut reader, writer) = pipe::pair(Default::default()).unwrap();
    let writer = Handle::from(writer);
    let unix = UnixOptions::default();
    let plan = Plan {
        program: program.as_os_str(),
        search: Search::Path(OsStr::new("")),
        arg0: None,
        args,
        env: Env::Exactly(&env),
        current_dir: None,
        stdio: [ChildStdio::Inherit, ChildStdio::Handle(&writer), ChildStdio::Inherit],
        inherit: Inherit::List(&[]),
        contain: None,
        limits: None,
        slot: None,
        foreground: None,
        terminal: None,
        unix: &unix,
        windows: None,
    };
    let child: ChildHandle = spawn(&plan).unwrap();
    drop(writer);
    let mut output = Vec::new();
    reader.read_to_end(&mut output).unwrap();
    let status = child.wait().unwrap().status;
    assert!(status.success(), "{status} with {args:?}");
    let output = String::from_utf8(output).unwrap();
    let mut words: Vec<OsString> = output.split('\0').map(OsString::from).collect();
    // The output ends with a NUL.
    assert_eq!(words.pop(), Some(OsString::new()), "{output:?}");
    words
}
