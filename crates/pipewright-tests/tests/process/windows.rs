//! Windows alone: the words of its errors, inheritance seen by its effect, consoles, limits of a job object.

use std::fs;
use std::io::{self, Read as _};
use std::os::windows::fs::OpenOptionsExt as _;
use std::os::windows::io::{AsRawHandle as _, OwnedHandle};
use std::sync::atomic::{AtomicBool, Ordering};

use pipewright::{
    Child, Command, Containment, Error, ErrorKind, LimitKind, LimitMechanism, Limits, Linger, Mode,
    NotExecutable, Outcome, PipeOptions, PipeReader, ProcessHandle, PtySize, Source, Stdio,
    TreeSlot,
};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::skip::{Need, skipped};
use pipewright_tests::{alive, count, watchdog};
use windows_sys::Win32::Foundation::{HANDLE_FLAG_INHERIT, SetHandleInformation};

use crate::{puppet, short};

fn error_of(program: impl AsRef<std::ffi::OsStr>) -> Error {
    Command::new(program).capture().unwrap_err()
}

#[watched_test]
fn not_found_names_the_number_of_searched_directories() {
    let error = Command::new("no-such").env("PATH", r"C:\a;C:\b").capture().unwrap_err();
    let ErrorKind::NotFound { searched } = error.kind() else { panic!("{error:?}") };
    assert!(
        searched.len() > 2,
        "the child's PATH, and the directories of the system: {searched:?}"
    );
    assert!(
        searched[..2]
            .iter()
            .all(|dir| [r"C:\a", r"C:\b"].iter().any(|own| dir.as_os_str() == *own))
    );
    let words = format!(
        r#"cannot start "no-such": not found in PATH (searched {} directories)"#,
        searched.len()
    );
    assert_eq!(error.to_string(), words);
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::NotFound);

    let error = error_of(r"C:\no\such\program.exe");
    assert_eq!(error.kind(), &ErrorKind::NotFound { searched: Vec::new() });
    assert!(error.to_string().ends_with(r#"program.exe": no such file"#), "{error}");
}

#[watched_test]
fn a_missing_working_directory_is_not_reported_as_a_missing_program() {
    let error = puppet(["exit=0"]).current_dir(r"C:\no\such").status().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::CurrentDirMissing { dir: r"C:\no\such".into() });
    assert!(error.to_string().contains("working directory"), "{error}");
    assert!(error.to_string().ends_with("does not exist"), "{error}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    let error = puppet(["exit=0"]).current_dir(&file).status().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::CurrentDirMissing { dir: file });
    assert!(error.to_string().ends_with("is not a directory"), "{error}");
}

#[watched_test]
fn not_executable_names_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let error = error_of(dir.path());
    assert_eq!(error.kind(), &ErrorKind::NotExecutable { reason: NotExecutable::IsDirectory });
    assert!(error.to_string().ends_with("\": is a directory"), "{error}");
    let text = dir.path().join("text.exe");
    fs::write(&text, "just text\r\n").unwrap();
    let error = error_of(&text);
    assert_eq!(error.kind(), &ErrorKind::NotExecutable { reason: NotExecutable::BadFormat });
    assert!(error.to_string().contains("\": exec format error: "), "{error}");
}

#[watched_test]
fn a_program_open_for_writing_is_busy() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("copy.exe");
    fs::copy(puppet(["exit=0"]).get_program(), &path).unwrap();
    let writer = fs::OpenOptions::new().append(true).share_mode(0).open(&path).unwrap();
    assert_eq!(error_of(&path).kind(), &ErrorKind::Busy);
    drop(writer);
    assert!(Command::new(&path).status().unwrap().success());
}

#[watched_test]
fn invalid_input_names_the_problem() {
    let words = |command: &mut Command| {
        let error = command.status().unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::InvalidInput, "{error}");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        error.to_string()
    };
    assert_eq!(words(&mut Command::new("")), r#"cannot start "": the command is empty"#);
    assert!(words(Command::new("cmd").args(["fine", "a\0b"])).ends_with("NUL byte in argument 2"));
    assert!(words(Command::new("cmd").env("A=B", "x")).contains("environment variable"));
    assert!(words(Command::new("cmd").env("A", "x\0")).contains("environment variable"));
    assert!(words(Command::new("cmd").current_dir("C:\\\0")).contains("directory's name"));
    // Of a drive's directory, which is a variable whose name begins with the sign.
    assert!(puppet(["exit=0"]).env("=C:", r"C:\").status().unwrap().success());
}

#[watched_test]
fn unsafe_arguments_of_a_batch_file_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script.bat");
    fs::write(&script, "@echo [%1]\r\n").unwrap();
    assert_eq!(Command::new(&script).arg("plain").read().unwrap(), "[plain]");
    for name in ["script.bat", "script.bat.", "script.bat ", "script.BAT. ."] {
        let error = Command::new(dir.path().join(name)).arg("a\r\nb").status().unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::BatArgs, "{name}: {error}");
    }
}

#[watched_test]
fn a_command_line_that_is_too_long_is_a_limit() {
    // CreateProcessW: 32,767 characters, with the last NUL.
    let error = puppet(["x".repeat(32_767)]).status().unwrap_err();
    let ErrorKind::Limit { what } = error.kind() else { panic!("{error:?}") };
    assert!(what.contains("too long"), "{error}");
}

#[watched_test]
fn failed_carries_status_outcome_and_the_end_of_stderr() {
    let error = puppet(["err=first\nlast words\n", "exit=3"]).read().unwrap_err();
    let ErrorKind::Failed { status, outcome, stderr_tail, .. } = error.kind() else {
        panic!("{error:?}");
    };
    assert_eq!((status.code(), *outcome), (Some(3), Outcome::Exited));
    assert_eq!(stderr_tail, "first\nlast words\n");
    assert!(error.to_string().contains("failed: exit "), "{error}");
    assert!(error.to_string().ends_with(": 3: last words"), "{error}");
    // The well-known number of an exception.
    let error = Command::new("cmd").args(["/c", "exit", "-1073741819"]).read().unwrap_err();
    assert!(error.to_string().to_lowercase().contains("0xc0000005"), "{error}");
}

#[watched_test]
fn strict_text_that_is_not_utf8_is_an_error_with_its_offset() {
    let error = puppet(["out-hex=616263ff"]).strict_utf8().capture().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::InvalidUtf8 { source: Source::Stdout, offset: 3 });
}

#[watched_test]
fn files_that_cannot_be_opened_are_named_and_nothing_is_started() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("started");
    let missing = dir.path().join("missing").join("file");
    for stdio in [0, 1] {
        let mut command = puppet([format!("touch={}", mark.display())]);
        match stdio {
            0 => command.stdin(Stdio::open(&missing)),
            _ => command.stdout(Stdio::create(&missing)),
        };
        let error = command.status().unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Io);
        assert!(error.to_string().contains("cannot open"), "{error}");
        assert!(!mark.exists(), "it was started");
    }
}

#[watched_test]
fn a_process_that_does_not_exist_is_not_found() {
    // Numbers are multiples of four, and far below this one.
    let error = ProcessHandle::open(0x7FFF_FFFC).unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::NoSuchProcess, "{error}");
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

/// Returns a pipe whose writing end is inheritable, as careless code leaves it.
fn careless_pipe() -> (PipeReader, OwnedHandle) {
    let (reader, writer) = pipewright::pipe(PipeOptions::default()).unwrap();
    let writer = OwnedHandle::from(writer);
    let flag = HANDLE_FLAG_INHERIT;
    // SAFETY: an open handle and two numbers.
    assert_ne!(unsafe { SetHandleInformation(writer.as_raw_handle(), flag, flag) }, 0);
    (reader, writer)
}

/// Checks that the pipe ends when our writing end closes: no other process has one.
fn ends_with_ours((mut reader, writer): (PipeReader, OwnedHandle)) {
    drop(writer);
    assert_eq!(reader.read(&mut [0]).unwrap(), 0);
}

fn waiting() -> Child {
    let mut command = puppet(["wait=600"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.kill_on_drop().spawn().unwrap()
}

#[isolated_test]
fn children_of_eight_threads_hold_no_unlisted_handle() {
    const STARTERS: usize = 8;
    const STARTS: usize = 5;
    let always = careless_pipe();
    let done = AtomicBool::new(false);
    let children: Vec<Child> = std::thread::scope(|scope| {
        let openers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut pipes = Vec::new();
                    while !done.load(Ordering::Relaxed) && pipes.len() < 500 {
                        pipes.push(careless_pipe());
                        std::thread::yield_now();
                    }
                    pipes
                })
            })
            .collect();
        let start = || (0..STARTS).map(|_| waiting()).collect::<Vec<_>>();
        let starters: Vec<_> = (0..STARTERS).map(|_| scope.spawn(start)).collect();
        let children = starters.into_iter().flat_map(|it| it.join().unwrap()).collect();
        done.store(true, Ordering::Relaxed);
        // While all the children run.
        for opener in openers {
            opener.join().unwrap().into_iter().for_each(ends_with_ours);
        }
        children
    });
    assert_eq!(children.len(), STARTERS * STARTS);
    ends_with_ours(always);
}

#[watched_test]
fn a_listed_handle_is_held_and_not_inheritable_afterwards() {
    let ours = PipeOptions { read: Mode::Async, ..PipeOptions::default() };
    let (mut reader, writer) = pipewright::pipe(ours).unwrap();
    let mut command = puppet(["wait=600"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.inherit(writer).kill_on_drop();
    let child = command.spawn().unwrap();
    // The command's own goes with it; the child has the other one.
    let other = waiting();
    drop(command);
    let look = reader.try_read_spare(&mut Vec::with_capacity(1));
    assert_eq!(look.unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "the child holds it");
    drop(child);
    assert_eq!(reader.read(&mut [0]).unwrap(), 0, "no other process holds it: {}", other.id());
}

const SIZE: PtySize = PtySize { rows: 30, cols: 100 };

#[watched_test]
fn the_output_ends_after_the_child() {
    // Waits for the end itself: Wine's console takes longer to close than the usual rule waits.
    let mut command = puppet(["exit=7"]);
    let capture = command.pty(SIZE).linger(Linger::UntilEof).capture().unwrap();
    assert_eq!((capture.status.code(), capture.held_open), (Some(7), false));
}

#[watched_test]
fn a_timeout_ends_a_child_on_a_console() {
    let capture = puppet(["wait=600"]).pty(SIZE).timeout(short()).capture().unwrap();
    assert_eq!((&capture.outcome, capture.held_open), (&Outcome::TimedOut, false));
    assert!(!alive::is_running(capture.pid));
}

#[watched_test]
fn a_spawned_child_has_its_console() {
    let child = puppet(["exit=3"]).pty(SIZE).spawn().unwrap();
    assert_eq!(child.pty().unwrap().window_size().unwrap(), SIZE);
    assert_eq!(child.wait().unwrap().code(), Some(3));
    let child = puppet(["exit=4"]).pty(SIZE).spawn().unwrap();
    assert_eq!(child.read_all_bytes().unwrap().status.code(), Some(4));
}

#[isolated_test]
fn a_console_leaves_no_handle() {
    let one = || {
        assert!(puppet(["exit=0"]).pty(SIZE).capture().unwrap().success());
        assert!(puppet(["exit=0"]).pty(SIZE).spawn().unwrap().wait().unwrap().success());
    };
    one();
    let before = count::handles_at_rest();
    for _ in 0..5 {
        one();
    }
    // Consoles are closed in the background.
    watchdog::until("all handles are closed", || count::handles_at_rest() <= before);
}

#[watched_test]
fn a_limit_of_a_job_holds_or_is_an_error() {
    let none = Limits::new();
    let limits = [
        (LimitKind::Memory, none.memory_max(256 << 20)),
        // Not a whole number of pages.
        (LimitKind::Memory, none.memory_max(2_000_000_000)),
        (LimitKind::Pids, none.pids_max(10)),
        (LimitKind::Cpu, none.cpu_max(1.5)),
    ];
    for (kind, limits) in limits {
        match puppet(["exit=3"]).limits(limits).capture() {
            Ok(capture) => {
                assert_eq!((capture.outcome, capture.status.code()), (Outcome::Exited, Some(3)));
                let held = capture.limits.unwrap();
                assert_eq!((held.limits, held.mechanism), (limits, Some(LimitMechanism::Job)));
                assert_eq!(capture.containment, Containment::Job);
            }
            Err(error) => {
                let ErrorKind::LimitUnavailable { limit } = error.kind() else { panic!("{error}") };
                assert_eq!(limit.limit, kind);
                skipped(Need::Windows, error);
            }
        }
    }
}

#[watched_test]
fn limits_that_no_job_has_are_errors() {
    let limits = Limits::new().memory_max(256 << 20);
    for (kind, limits) in [
        (LimitKind::Swap, Limits::new().memory_swap_max(0)),
        (LimitKind::OomGroup, limits.oom_group()),
    ] {
        let error = puppet(["exit=0"]).limits(limits).status().unwrap_err();
        let ErrorKind::LimitUnavailable { limit } = error.kind() else { panic!("{error}") };
        assert!(limit.limit == kind || limit.limit == LimitKind::Memory, "{error}");
    }
}

#[watched_test]
fn a_job_without_its_limits_says_which_ones_are_missing() {
    let limits = Limits::new().memory_max(256 << 20).memory_swap_max(0).pids_max(10).best_effort();
    let capture = puppet(["exit=3"]).limits(limits).capture().unwrap();
    assert_eq!(capture.status.code(), Some(3));
    let held = capture.limits.unwrap();
    assert!(held.missing.iter().any(|missing| missing.limit == LimitKind::Swap), "{held:?}");
    assert_eq!(held.limits.kinds().count() + held.missing.len(), 3);
    assert!(capture.tree_usage.is_some());
}

#[watched_test]
fn a_slot_keeps_no_limit_for_the_next_command() {
    let slot = TreeSlot::new().unwrap();
    let limits = Limits::new().memory_max(256 << 20).pids_max(10).best_effort();
    for _ in 0..2 {
        let capture = puppet(["exit=3"]).limits(limits).contain_in(&slot).capture().unwrap();
        assert_eq!((capture.status.code(), capture.containment), (Some(3), Containment::Job));
        let held = capture.limits.unwrap();
        assert_eq!(held.limits.kinds().count() + held.missing.len(), 2, "{held:?}");
        assert!(capture.tree_usage.is_some());

        let capture = puppet(["exit=4"]).contain_in(&slot).capture().unwrap();
        assert_eq!((capture.status.code(), capture.limits), (Some(4), None));
    }
}
