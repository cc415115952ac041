//! Real starts: of this test program once more, which then does what its environment says.
//!
//! A child reports its result by its exit code, because its streams belong to the test harness.

mod acts;
mod starts;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::windows::io::{AsHandle as _, AsRawHandle as _, FromRawHandle as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::base::error::{OsErrorKind, os_error_kind};
use crate::base::handle::{Handle, copy_of, inheritable};
use crate::base::pipe::{self, Mode, PipeOptions, pair};
use crate::base::signal::Signal;
use crate::base::wait::{self, Slot};
use crate::process::child::{ChildHandle, Containment};
use crate::process::open::{Opened, ProcessState};
use crate::process::pty::{OpenProblem, PtySize, open};
use crate::process::start::{
    BadInput, ChildStdio, Contain, Env, EnvSnapshot, Group, Inherit, Plan, Search, SpawnError,
    Step, UnixOptions, WindowsOptions, exec, spawn,
};

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
        crate::process::start::spawn(&self.plan()).unwrap()
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
    crate::process::start::spawn(&plan("cmd", &args, &unix)).unwrap()
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
        assert!(ends(&exit));
    }
}

#[test]
fn ctrl_break_ends_a_group_that_shares_the_console() {
    const STATUS_CONTROL_C_EXIT: u32 = 0xc000_013a;
    let act = act("asks a group to end", "");
    // Contained, so that no process is left if none receives the event.
    let exit = spawn(&Plan { contain: Some(Contain::tree(true)), ..act.plan() }).unwrap();
    match code(&exit) {
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
        assert_eq!(code(&exit), 3, "{windows:?}");
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
    assert_eq!(code(&exit), 1);
    let ProcessState::Ended(ended) = opened.state().unwrap() else { panic!("it has ended") };
    assert_eq!(ended.status.raw(), 1, "every process with a handle gets it");
    assert!(!opened.signal(Signal::KILL).unwrap());
    // Still that process: no other can have the number as long as the handle is open.
    assert!(matches!(
        Opened::open(exit.pid()).map(|it| it.state()),
        Ok(Ok(ProcessState::Ended(_))) | Err(_)
    ));
}

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

fn failure(program: &str, args: &[OsString]) -> SpawnError {
    let unix = UnixOptions::default();
    spawn(&plan(program, args, &unix)).unwrap_err()
}

#[test]
fn a_program_that_is_not_there_is_not_found() {
    for program in
        ["no-such-program", "no-such.exe", r"C:\no\such.exe", r"C:\windows\no-such", "a\"b"]
    {
        let error = failure(program, &[]);
        assert_eq!(
            (error.step, error.source.kind()),
            (Step::Exec, io::ErrorKind::NotFound),
            "{program}"
        );
    }
}

#[test]
fn the_working_directory_is_not_searched() {
    let note = Note::new("cwd");
    let dir = std::env::temp_dir();
    let name = format!("pipewright-cwd-{}.exe", std::process::id());
    std::fs::copy(r"C:\windows\system32\cmd.exe", dir.join(&name)).unwrap();
    let unix = UnixOptions::default();
    let env = [("PATH".into(), ";;".into())];
    let plan = Plan {
        current_dir: Some(&dir),
        env: Env::Exactly(&env),
        search: Search::Path(";;".as_ref()),
        ..plan(&name, &[], &unix)
    };
    let error = spawn(&plan).unwrap_err();
    std::fs::remove_file(dir.join(&name)).unwrap();
    assert_eq!((error.step, error.source.kind()), (Step::Exec, io::ErrorKind::NotFound));
    drop(note);
}

#[test]
fn the_childs_path_is_searched_first() {
    let dir = std::env::temp_dir().join(format!("pipewright path {}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    // It has the name of a program in a directory that every search includes.
    std::fs::copy(std::env::current_exe().unwrap(), dir.join("cmd.exe")).unwrap();
    let mut act = act("exit", "9");
    act.env.retain(|(name, _)| !name.eq_ignore_ascii_case("path"));
    act.env.push(("PATH".into(), dir.clone().into()));
    let plan =
        Plan { program: "cmd".as_ref(), search: Search::Path(dir.as_os_str()), ..act.plan() };
    let found = code(&spawn(&plan).unwrap());
    std::fs::remove_dir_all(&dir).unwrap();
    assert_eq!(found, 9);
}

#[test]
fn directories_and_bad_formats_give_different_errors() {
    let error = failure(r"C:\windows", &[]);
    assert_eq!(
        (error.step, os_error_kind(&error.source)),
        (Step::Exec, Some(OsErrorKind::Denied)),
        "{error}"
    );
    let note = Note::new("no program");
    std::fs::write(&note.0, "hello\n").unwrap();
    let error = failure(note.0.to_str().unwrap(), &[]);
    assert_eq!(
        (error.step, os_error_kind(&error.source)),
        (Step::Exec, Some(OsErrorKind::BadFormat)),
        "{error}"
    );
}

#[test]
fn a_start_that_fails_takes_nothing_from_an_overlapped_stdin() {
    let note = Note::new("takes nothing");
    std::fs::write(&note.0, "no program\n").unwrap();
    let options = PipeOptions { read: Mode::Async, ..PipeOptions::default() };
    let (mut reader, writer) = pair(options).unwrap();
    (&writer).write_all(b"for the next one").unwrap();
    let (unix, given) = (UnixOptions::default(), Handle::from(reader.try_clone().unwrap()));
    let stdio = [ChildStdio::Handle(&given), ChildStdio::Inherit, ChildStdio::Inherit];
    let program = note.0.to_str().unwrap();
    let error = spawn(&Plan { stdio, ..plan(program, &[], &unix) }).unwrap_err();
    assert_eq!(error.step, Step::Exec, "{error}");
    drop((given, writer));
    let mut left = String::new();
    reader.read_to_string(&mut left).unwrap();
    assert_eq!(left, "for the next one");
}

#[test]
fn missing_directory_and_missing_program_give_different_errors() {
    let unix = UnixOptions::default();
    let note = Note::new("no directory");
    std::fs::write(&note.0, "").unwrap();
    for (dir, kind) in [
        (Path::new(r"C:\no such directory"), io::ErrorKind::NotFound),
        (note.0.as_path(), io::ErrorKind::NotADirectory),
    ] {
        for program in ["cmd", "no-such-program", r".\cmd.exe"] {
            let error = spawn(&Plan { current_dir: Some(dir), ..plan(program, &[], &unix) });
            let error = error.unwrap_err();
            assert_eq!((error.step, error.source.kind()), (Step::CurrentDir, kind), "{program}");
        }
    }
}

#[test]
fn a_command_line_that_is_too_long_is_a_limit() {
    let error = failure("cmd", &["x".repeat(32_767).into()]);
    assert_eq!(error.step, Step::Exec);
    assert!(matches!(os_error_kind(&error.source), Some(OsErrorKind::Limit(_))), "{error}");
    // The longest line works: no argument here has quotes, the program has.
    let mut act = act("exit", "3");
    let words = act.args.iter().map(|arg| arg.len() + 1).sum::<usize>();
    let used = act.program.as_os_str().len() + 2 + words + 1;
    act.args.push("x".repeat(32_766 - used).into());
    assert_eq!(act.code(), 3);
    act.args.last_mut().unwrap().push("x");
    assert!(spawn(&act.plan()).is_err());
}

#[test]
fn contradicting_flags_are_refused() {
    let windows =
        crate::process::start::WindowsOptions { creation_flags: 0x10 | 0x8, ..Default::default() };
    let unix = UnixOptions::default();
    let args = ["/c".into(), "exit 0".into()];
    match spawn(&Plan { windows: Some(&windows), ..plan("cmd", &args, &unix) }) {
        Err(error) => assert_eq!(error.step, Step::Create, "{error}"),
        Ok(_) => crate::base::skipped::skipped(
            crate::base::skipped::Need::Windows,
            "this system takes them",
        ),
    }
}

#[test]
fn a_batch_file_is_run_and_unsafe_arguments_are_refused() {
    let dir = std::env::temp_dir().join(format!("pipewright batch {}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("a b.cmd"), "@exit %1\r\n").unwrap();
    let unix = UnixOptions::default();
    let path = dir.join("a b.cmd");
    let args = [OsString::from("7")];
    let found = spawn(&plan(path.to_str().unwrap(), &args, &unix)).map(|exit| code(&exit));
    // By its bare name, as npm's are called.
    let env = [("PATH".into(), dir.clone().into())];
    let plan_by_name = Plan {
        env: Env::Exactly(&env),
        search: Search::Path(dir.as_os_str()),
        ..plan("a b", &args, &unix)
    };
    let by_name = spawn(&plan_by_name).map(|exit| code(&exit));
    let hostile = [OsString::from("a\nb")];
    let refused = failure(path.to_str().unwrap(), &hostile);
    // The system finds a batch file under that name.
    let dotted = format!("{}. .", path.to_str().unwrap());
    let dotted = failure(&dotted, &hostile);
    let missing = failure(dir.join("missing.bat").to_str().unwrap(), &[]);
    std::fs::remove_dir_all(&dir).unwrap();
    assert_eq!(found.unwrap(), 7);
    assert_eq!(by_name.unwrap(), 7);
    assert_eq!(refused.step, Step::Check(BadInput::BatchArg(0)));
    assert_eq!(dotted.step, Step::Check(BadInput::BatchArg(0)));
    assert_eq!((missing.step, missing.source.kind()), (Step::Exec, io::ErrorKind::NotFound));
}
