//! Random arguments reach a real child as they were given.
//!
//! Without the test harness, which would take the child's arguments for its own. The child is this
//! program, and says what it was given; on Windows so does one that a batch file passes them on to.
//!
//! What this proves: the whole way, from the plan to the arguments of a program in Rust, for ten
//! thousand vectors; one start has many of them, as a start takes a tenth of a second under Wine. On
//! Windows that is std's own parser, and what Wine makes of a command line. The tests inside of the
//! library hold as many against the documented rules of both parsers that programs there have.

#![allow(clippy::unwrap_used, reason = "it ends where it cannot go on")]

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{Read as _, Write as _};
use std::path::Path;

use pipewright_os::base::handle::Handle;
use pipewright_os::base::pipe;
use pipewright_os::process::child::ChildHandle;
use pipewright_os::process::spawn::{ChildStdio, Env, Inherit, Plan, Search, UnixOptions, spawn};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

const CHILD: &str = "PIPEWRIGHT_TESTS_ARGUMENTS";
const STARTS: usize = 200;
/// Vectors in a start: `cmd.exe` takes no more than 8191 characters.
const VECTORS: usize = 50;
/// Stands between two of them, so that none can run into the next unseen.
const BETWEEN: &str = "between";

fn main() {
    if env::var_os(CHILD).is_some() {
        return say_arguments();
    }
    // A list of tests is asked for by tools.
    if env::args().any(|arg| arg == "--list") {
        return println!("arguments: test");
    }
    let program = env::current_exe().unwrap();
    let mut vectors = Vectors::new(r#"\" '=%^&|<>()!,;*?$`a"#);
    for _ in 0..STARTS {
        let args = vectors.next();
        assert_eq!(said(&program, &args), args);
    }
    println!("{} vectors of arguments have reached a program", STARTS * VECTORS);
    if cfg!(windows) {
        through_a_batch_file(&program);
    }
}

fn say_arguments() {
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
        let found = said(&script, &args);
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
    println!("{count} vectors of arguments have reached a program through a batch file");
}

/// What means something to `cmd.exe`; but not `%`: Wine's faults on the only way there is to
/// write it, which is std's.
const BATCH: &str = r#"\" '=^&|<>()!,;*?$`a"#;

/// Arguments, of these characters mostly.
struct Vectors {
    runner: TestRunner,
    strategy: BoxedStrategy<Vec<String>>,
}

impl Vectors {
    fn new(characters: &str) -> Vectors {
        let characters: Vec<char> = characters.chars().collect();
        let any = prop_oneof![6 => prop::sample::select(characters), 1 => "[a-z\u{e9}\u{20ac}\u{1f600}]".prop_map(first)];
        let arg = prop::collection::vec(any, 0..10).prop_map(String::from_iter);
        let strategy = prop::collection::vec(arg, 0..6).boxed();
        Vectors { runner: TestRunner::deterministic(), strategy }
    }

    /// Those for one start.
    fn next(&mut self) -> Vec<OsString> {
        let mut all = Vec::new();
        for _ in 0..VECTORS {
            all.extend(self.strategy.new_tree(&mut self.runner).unwrap().current());
            all.push(BETWEEN.to_owned());
        }
        all.into_iter().map(OsString::from).collect()
    }
}

fn first(text: String) -> char {
    text.chars().next().unwrap()
}

/// What a child says it was given.
fn said(program: &Path, args: &[OsString]) -> Vec<OsString> {
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
        foreground: None,
        unix: &unix,
        windows: None,
    };
    let exit: ChildHandle = spawn(&plan).unwrap();
    drop(writer);
    let mut said = Vec::new();
    reader.read_to_end(&mut said).unwrap();
    let status = exit.wait().unwrap().status;
    assert!(status.success(), "{status} with {args:?}");
    let said = String::from_utf8(said).unwrap();
    let mut words: Vec<OsString> = said.split('\0').map(OsString::from).collect();
    // After the last NUL is nothing.
    assert_eq!(words.pop(), Some(OsString::new()), "{said:?}");
    words
}
