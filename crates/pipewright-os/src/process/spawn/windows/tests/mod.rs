//! Real starts: of this test program once more, which then does what its environment says.
//!
//! A child reports its result by its exit code, because its streams belong to the test harness.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::base::wait::{self, Slot};
use crate::process::child::ChildHandle;
use crate::process::spawn::{ChildStdio, Env, EnvSnapshot, Inherit, Plan, Search, UnixOptions};

mod acts;
mod console;
mod errors;
mod handles;
mod options;
mod starts;
mod trees;

/// The variables that name a child's act and its argument.
const ACT: &str = "PIPEWRIGHT_ACT";
const WITH: &str = "PIPEWRIGHT_WITH";

pub(super) fn plan<'a>(program: &'a str, args: &'a [OsString], unix: &'a UnixOptions) -> Plan<'a> {
    Plan {
        program: OsStr::new(program),
        search: Search::Default,
        arg0: None,
        args,
        env: Env::Inherit(&EnvSnapshot {}),
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

/// A child that is this program.
struct TestChild {
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    unix: UnixOptions,
}

fn act(name: &str, with: impl Into<OsString>) -> TestChild {
    // The test harness names tests without the crate.
    let (_, module) = module_path!().split_once("::").unwrap();
    let test = format!("{module}::acts::act");
    let args = ["--exact", &test, "--ignored", "--nocapture"];
    let mut env: Vec<_> =
        std::env::vars_os().filter(|(key, _)| key != ACT && key != WITH).collect();
    env.push((ACT.into(), name.into()));
    env.push((WITH.into(), with.into()));
    TestChild {
        program: std::env::current_exe().unwrap(),
        args: args.map(OsString::from).to_vec(),
        env,
        unix: UnixOptions::default(),
    }
}

impl TestChild {
    fn plan(&self) -> Plan<'_> {
        let program = self.program.to_str().unwrap();
        Plan { env: Env::Exactly(&self.env), ..plan(program, &self.args, &self.unix) }
    }

    fn start(&self) -> ChildHandle {
        crate::process::spawn::spawn(&self.plan()).unwrap()
    }

    /// Starts it and returns its exit code.
    fn code(&self) -> u32 {
        code(&self.start())
    }
}

/// Starts `cmd.exe` with that command.
fn cmd(command: &str) -> ChildHandle {
    let args = ["/d".into(), "/c".into(), command.into()];
    let unix = UnixOptions::default();
    crate::process::spawn::spawn(&plan("cmd", &args, &unix)).unwrap()
}

fn code(exit: &ChildHandle) -> u32 {
    exit.wait().unwrap().status.raw()
}

/// Waits for a fact. After a long time it fails, because the fact will never come.
fn until(what: &str, fact: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !fact() {
        assert!(Instant::now() < end, "{what}");
        wait::any(&mut [], Some(Instant::now() + Duration::from_millis(5))).unwrap();
    }
}

/// Waits for the end of a child, at most for a while.
fn ends(exit: &ChildHandle) -> bool {
    let end = Instant::now() + Duration::from_secs(60);
    wait::any(&mut [Slot::Event(exit)], Some(end)).unwrap() == 1
}

/// A file that a child writes to, removed when the test is over.
struct Note(PathBuf);

impl Note {
    fn new(name: &str) -> Note {
        let name = format!("pipewright {name} {}.txt", std::process::id());
        let note = Note(std::env::temp_dir().join(name));
        let _ = std::fs::remove_file(&note.0);
        note
    }

    fn number(&self) -> u32 {
        until("nothing is noted", || self.text().ends_with('\n'));
        self.text().trim().parse().unwrap()
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap_or_default()
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
