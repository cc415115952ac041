//! Every error kind, provoked by a test, with the documented words.

use std::error::Error as _;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pipewright::{Command, Error, ErrorKind, NotExecutable, Outcome, ProcessHandle};
use pipewright::{Resource, Source, Stdio};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::skip::{Need, is_forced_off, is_root, skipped};
use pipewright_tests::{TRUE, count, watchdog};

use super::puppet;

/// Creates an executable file.
///
/// Another process writes it: a child that another test starts has the files that this one writes open until it
/// executes, and such a file is busy.
fn program(dir: &Path, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let (path, written) = (dir.join(name), dir.join(format!("{name}.written")));
    fs::write(&written, content).unwrap();
    Command::new("cp").args([&written, &path]).run().unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn error_of(program: impl AsRef<std::ffi::OsStr>) -> Error {
    Command::new(program).capture().unwrap_err()
}

#[track_caller]
fn is_not_executable(error: &Error, reason: &NotExecutable) {
    assert_eq!(error.kind(), &ErrorKind::NotExecutable { reason: reason.clone() });
}

#[watched_test]
fn not_found_names_the_number_of_searched_directories() {
    let error = Command::new("no-such").env("PATH", "/a:/b::/c").capture().unwrap_err();
    let searched = ["/a", "/b", "", "/c"].map(PathBuf::from).to_vec();
    assert_eq!(error.kind(), &ErrorKind::NotFound { searched });
    let words = r#"cannot start "no-such": not found in PATH (searched 4 directories)"#;
    assert_eq!(error.to_string(), words);
    assert!(error.source().is_some(), "the system's error is kept");
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::NotFound);

    let error = Command::new("no-such").env_clear().env("PATH", "/a").status().unwrap_err();
    assert!(error.to_string().ends_with("(searched 1 directory)"), "{error}");

    let error = error_of("/no/such/program");
    assert_eq!(error.to_string(), r#"cannot start "/no/such/program": no such file"#);
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    // A file where a directory would have to be.
    let error = error_of("/etc/passwd/program");
    assert_eq!(error.to_string(), r#"cannot start "/etc/passwd/program": no such file"#);
}

#[watched_test]
fn a_missing_working_directory_is_not_reported_as_a_missing_program() {
    let error = Command::new("true").current_dir("/no/such").status().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::CurrentDirMissing { dir: "/no/such".into() });
    let words = r#"cannot start "true": working directory "/no/such" does not exist"#;
    assert_eq!(error.to_string(), words);
    let error = Command::new("true").current_dir("/etc/passwd").status().unwrap_err();
    let words = r#"cannot start "true": working directory "/etc/passwd" is not a directory"#;
    assert_eq!(error.to_string(), words);
}

#[watched_test]
fn permission_denied() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plain");
    fs::write(&file, "x").unwrap();
    let error = error_of(&file);
    assert_eq!(error.kind(), &ErrorKind::PermissionDenied);
    assert!(error.to_string().ends_with("\": permission denied (os error 13)"), "{error}");
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::PermissionDenied);

    if !is_root() {
        return skipped(Need::Root, "a user whose directories cannot be entered needs root");
    }
    let locked = tempfile::tempdir().unwrap();
    fs::set_permissions(locked.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let error = Command::new("true").uid(65534).current_dir(locked.path()).status().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::PermissionDenied);
    let words = format!(
        "cannot start \"true\": cannot change to its working directory \"{}\": permission denied (os error 13)",
        locked.path().display()
    );
    assert_eq!(error.to_string(), words);
}

#[watched_test]
fn one_forbidden_program_in_the_path_does_not_hide_the_next() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(first.path().join("tool"), "not executable").unwrap();
    program(second.path(), "tool", "#!/bin/sh\necho second\n");
    let path = format!("{}:{}", first.path().display(), second.path().display());
    assert_eq!(Command::new("tool").env("PATH", &path).read().unwrap(), "second");
    let only = first.path().display().to_string();
    let error = Command::new("tool").env("PATH", only).read().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::PermissionDenied);
}

#[watched_test]
fn not_executable_names_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let error = error_of(dir.path());
    is_not_executable(&error, &NotExecutable::IsDirectory);
    assert!(error.to_string().ends_with("\": is a directory"), "{error}");

    let error = error_of(program(dir.path(), "text", "just text\n"));
    is_not_executable(&error, &NotExecutable::BadFormat);
    assert!(error.to_string().contains("\": exec format error: "), "{error}");
    assert!(error.to_string().ends_with("as in #!/bin/sh"), "{error}");
    is_not_executable(&error_of(program(dir.path(), "empty", "")), &NotExecutable::BadFormat);

    let script = program(dir.path(), "script", "#!/no/such/python -u\nprint()\n");
    let missing = NotExecutable::MissingInterpreter("/no/such/python".into());
    is_not_executable(&error_of(&script), &missing);
    let words = r#"": its interpreter "/no/such/python" does not exist"#;
    assert!(error_of(&script).to_string().ends_with(words));

    let windows = program(dir.path(), "windows", "#!/bin/sh\r\necho\r\n");
    let words = r#"": its interpreter "/bin/sh\r" does not exist"#;
    assert!(error_of(windows).to_string().ends_with(words));

    // The script is found in PATH, and its interpreter is still missing.
    let error = Command::new("script").env("PATH", dir.path()).status().unwrap_err();
    is_not_executable(&error, &missing);
    // And from the child's own working directory.
    let error = Command::new("./script").current_dir(dir.path()).status().unwrap_err();
    is_not_executable(&error, &missing);
}

#[watched_test]
fn a_missing_loader_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = fs::read(TRUE).unwrap();
    let loader = b"/lib64/ld-linux-x86-64.so.2";
    let Some(at) = bytes.windows(loader.len()).position(|window| window == loader) else {
        return skipped(
            Need::File("/lib64/ld-linux-x86-64.so.2"),
            "the program has another loader here",
        );
    };
    bytes[at + 5] = b'X';
    let error = error_of(program(dir.path(), "foreign", bytes));
    let missing = NotExecutable::MissingInterpreter("/lib6X/ld-linux-x86-64.so.2".into());
    is_not_executable(&error, &missing);
}

#[isolated_test]
fn a_program_open_for_writing_is_busy_and_retried() {
    // Isolated: a child that another test starts has the written file open until it executes.

    let dir = tempfile::tempdir().unwrap();
    let path = program(dir.path(), "copy", fs::read(TRUE).unwrap());
    let open = || fs::OpenOptions::new().append(true).open(&path).unwrap();
    let writer = open();
    let error = error_of(&path);
    assert_eq!(error.kind(), &ErrorKind::Busy);
    let words = error.to_string();
    assert!(words.ends_with("\": text file busy: the file is open for writing"));
    drop(writer);
    // A busy machine may close it only after the last attempt.
    watchdog::until("a start has outlasted the writer", || {
        let (start, writer) = (Instant::now(), open());
        let closer = std::thread::spawn(move || {
            std::thread::park_timeout(Duration::from_millis(5));
            drop(writer);
            start.elapsed()
        });
        let result = Command::new(&path).status();
        let closed_after = closer.join().unwrap();
        match result {
            Ok(status) => status.success(),
            Err(error) => {
                assert_eq!(error.kind(), &ErrorKind::Busy);
                // The pauses between the attempts, as documented.
                assert!(closed_after >= Duration::from_millis(127), "{closed_after:?}");
                false
            }
        }
    });
}

#[watched_test]
fn invalid_input_names_the_problem() {
    let words = |command: &mut Command| {
        let error = command.status().unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::InvalidInput);
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        error.to_string()
    };
    assert_eq!(words(&mut Command::new("")), r#"cannot start "": the command is empty"#);
    assert_eq!(
        words(Command::new("true").args(["fine", "a\0b"])),
        r#"cannot start "true": NUL byte in argument 2"#
    );
    assert!(words(Command::new("true").env("A=B", "x")).contains("environment variable"));
    assert!(words(Command::new("true").env("A", "x\0")).contains("environment variable"));
    assert!(
        words(&mut Command::new("a\0b")).contains(r#""a\u{0}b": NUL byte in the program's name"#)
    );
    assert!(words(Command::new("true").current_dir("/\0")).contains("directory's name"));

    let null = || fs::File::open("/dev/null").unwrap();
    let mut stdio_twice = Command::new("true");
    stdio_twice.inherit(null()).inherit_fd_as(null(), 1);
    assert!(words(&mut stdio_twice).contains("inherit[1] would replace"));
    let mut number_twice = Command::new("true");
    number_twice.inherit_fd_as(null(), 50).inherit_fd_as(null(), 50);
    assert!(words(&mut number_twice).contains("inherit[1] has the same number"));

    assert!(words(Command::new("cat").stdin(Stdio::create("/tmp/x"))).contains("stdin"));
    assert!(words(Command::new("cat").stdout(Stdio::bytes("x"))).contains("stdout"));
    let mut reader = Command::new("true");
    assert!(reader.stdin(Stdio::reader(io::empty())).status().unwrap().success());
    assert!(words(&mut reader).contains("already used"));
}

#[isolated_test]
fn too_many_open_files_is_a_limit() {
    let before = count::handles();
    // The limit is on numbers: room for one more than the lowest that is free.
    let lowest = pipewright::null().unwrap().number() as u64;
    let limit = libc::rlimit { rlim_cur: lowest + 2, rlim_max: 1024 };
    // SAFETY: a live struct; this process runs nothing but this test.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    let error = error_of("true");
    assert_eq!(error.kind(), &ErrorKind::Limit { what: "too many open files" });
    assert!(error.to_string().ends_with("too many open files (os error 24)"), "{error}");
    assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
    assert_eq!(count::handles(), before, "and nothing is left of the attempt");
}

#[cfg(target_os = "linux")]
#[isolated_test]
fn the_first_start_needs_one_descriptor_although_it_would_use_three() {
    if is_forced_off("vfork") || (is_forced_off("pidfd") && is_forced_off("close_range")) {
        // The report is needed, or the child needs a descriptor to find those that it closes.
        return;
    }
    let old = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let set_limit = |soft: u64| {
        let new = rustix::process::Rlimit { current: Some(soft), maximum: old.maximum };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, new).unwrap();
    };
    // The limit is on numbers. The two that are free are enough for a report that only some emulators need.
    let free: Vec<_> = (0..2).map(|_| pipewright::null().unwrap()).collect();
    set_limit(free.iter().map(|it| it.number() as u64).max().unwrap() + 1);
    drop(free);
    let status = Command::new(TRUE).own_group().status();
    set_limit(old.current.unwrap());
    assert!(status.unwrap().success());
}

#[isolated_test]
fn too_many_processes_is_a_limit() {
    if is_root() {
        // Root is never refused: become a user with no other process.
        // SAFETY: numbers; this process runs nothing but this test.
        assert_eq!(unsafe { libc::setuid(54321) }, 0);
    }
    let limit = libc::rlimit { rlim_cur: 1, rlim_max: 1 };
    // SAFETY: a live struct.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit) }, 0);
    let error = error_of(TRUE);
    assert_eq!(error.kind(), &ErrorKind::Limit { what: "too many processes" });
    let code = rustix::io::Errno::AGAIN.raw_os_error();
    assert_eq!(
        error.to_string(),
        format!("cannot start \"{TRUE}\": too many processes (os error {code})")
    );
}

/// Returns the address space that this process uses now, in bytes.
#[cfg(target_os = "linux")]
fn address_space() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096
}

#[cfg(target_os = "linux")]
#[isolated_test]
fn out_of_memory_is_a_limit() {
    // The present use, with room for the allocations of a start (musl's allocator keeps no spare memory), but not for
    // the stack of a child, which is 64 KiB.
    let limit =
        libc::rlimit { rlim_cur: address_space() + (48 << 10), rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a live struct.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
    let result = Command::new(TRUE).status();
    let room = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a live struct.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const room) }, 0);
    assert_eq!(result.unwrap_err().kind(), &ErrorKind::Limit { what: "out of memory" });
}

#[watched_test]
fn arguments_that_are_too_long_are_a_limit() {
    let long = "x".repeat(200_000);
    let error = Command::new("true").arg(long).status().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Limit { what: "arguments and environment are too long" });
    let words = r#"cannot start "true": arguments and environment are too long (os error 7)"#;
    assert_eq!(error.to_string(), words);
}

#[watched_test]
fn failed_carries_status_outcome_and_the_end_of_stderr() {
    let error = puppet(["err=first\nlast words\n", "exit=3"]).read().unwrap_err();
    let ErrorKind::Failed { status, outcome, stderr_tail, .. } = error.kind() else {
        panic!("{error:?}");
    };
    assert_eq!((status.code(), *outcome), (Some(3), Outcome::Exited));
    assert_eq!(stderr_tail, "first\nlast words\n");
    assert!(
        error.to_string().ends_with(r#"puppet" failed: exit status: 3: last words"#),
        "{error}"
    );
    let error = puppet(["raise=KILL"]).read().unwrap_err();
    assert!(error.to_string().ends_with("failed: signal: 9 (SIGKILL)"), "{error}");
    // `run` keeps only the end of a long stderr.
    let error = puppet(["err-bytes=1000000", "exit=1"]).stderr(Stdio::piped()).run().unwrap_err();
    let ErrorKind::Failed { stderr_tail, .. } = error.kind() else { panic!("{error:?}") };
    assert!((60_000..=200_000).contains(&stderr_tail.len()), "{}", stderr_tail.len());
}

#[watched_test]
fn strict_text_that_is_not_utf8_is_an_error_with_its_offset() {
    let error = puppet(["out-hex=616263ff"]).strict_utf8().capture().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::InvalidUtf8 { source: Source::Stdout, offset: 3 });
    let words = r#"stdout is not UTF-8 at byte 3"#;
    assert!(error.to_string().ends_with(words), "{error}");
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::InvalidData);
}

#[cfg(target_os = "linux")]
#[watched_test]
fn files_that_cannot_be_opened_are_named_and_nothing_is_started() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("started");
    let touch = format!("touch={}", mark.display());
    let words = |command: &mut Command| {
        let error = command.status().unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Io);
        assert!(!mark.exists(), "it was started");
        error.to_string()
    };
    let said = words(puppet([&touch]).stdin(Stdio::open("/no/such/file")));
    assert!(said.contains(r#"cannot open "/no/such/file" for its stdin: "#), "{said}");
    let said = words(puppet([&touch]).stdout(Stdio::create("/no/such/dir/out")));
    assert!(said.contains(r#"cannot open "/no/such/dir/out" for its stdout: "#), "{said}");
    let said = words(puppet([&touch]).stderr(Stdio::append("/proc")));
    assert!(said.contains(r#"cannot open "/proc" for its stderr: "#), "{said}");
}

#[watched_test]
fn steps_that_fail_in_the_child_are_named() {
    let error = Command::new("true")
        .rlimit(Resource::OpenFiles, Some(u64::MAX - 1), Some(u64::MAX - 1))
        .status()
        .unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::PermissionDenied), "{error}");
    let error = Command::new("true").chroot("/no/such/root").status().unwrap_err();
    assert!(error.to_string().contains("change its root directory"), "{error}");
    let error = Command::new("true").process_group(i32::MAX).status().unwrap_err();
    let group = "cannot set its process group or session";
    assert!(
        error.to_string().contains(group) || *error.kind() == ErrorKind::PermissionDenied,
        "{error}"
    );
}

#[watched_test]
fn every_error_is_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let nasty = dir.path().join("a\nb\u{1b}[2J");
    for error in [
        error_of(&nasty),
        Command::new("true").current_dir(&nasty).status().unwrap_err(),
        Command::new("true").stdin(Stdio::open(&nasty)).status().unwrap_err(),
        puppet(["err=\u{1b}[31mred\u{7}\n", "exit=1"]).read().unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(!text.chars().any(char::is_control), "{text:?}");
        assert!(!text.ends_with('.'), "{text}");
    }
}

#[isolated_test]
fn a_status_reaped_by_other_code_is_found_or_reported_lost() {
    // SAFETY: this process runs nothing but this test.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    match puppet(["exit=42"]).status() {
        Ok(status) => assert_eq!(status.code(), Some(42), "the kernel kept it"),
        Err(error) => {
            assert_eq!(error.kind(), &ErrorKind::StatusLost);
            assert!(error.to_string().ends_with("and its exit status is lost"), "{error}");
        }
    }
    // Also in the loop of a capture, which never hangs.
    match puppet(["out=x", "exit=42"]).capture() {
        Ok(capture) => assert_eq!((capture.status.code(), capture.usage), (Some(42), None)),
        Err(error) => assert_eq!(error.kind(), &ErrorKind::StatusLost),
    }
}

#[watched_test]
fn a_process_that_does_not_exist_is_not_found() {
    if is_forced_off("pidfd") {
        return skipped(Need::Pidfd, "processes are only opened as pidfds");
    }
    // The largest number that a process can have is 2^22 (proc_sys_kernel(5), pid_max).
    let error = ProcessHandle::open(i32::MAX as u32).unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::NoSuchProcess);
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    let words = r#"cannot open process "2147483647": no such process (os error 3)"#;
    assert_eq!(error.to_string(), words);
}

#[watched_test]
fn secret_arguments_are_never_in_errors() {
    let mut command = Command::new("/no/such/program");
    command.secret_arg("hunter2");
    let error = command.status().unwrap_err();
    assert!(!format!("{error} {error:?} {command:?} {command}").contains("hunter2"));
}
