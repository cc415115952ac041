//! `pipewright::process` is `std::process`: the same program compiles against both, and prints the same.

mod ext;
mod program;

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use pipewright::process::unix::CommandExt as _;
use pipewright::process::{Command, Stdio};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::{TRUE, count, watchdog};

/// Runs each function once with std and once with `pipewright::process`, and compares their results: `alone`, in a
/// process of its own.
macro_rules! same_with_both {
    (alone $($test:ident)*) => { same_with_both! { @isolated_test $($test)* } };
    ($($test:ident)*) => { same_with_both! { @watched_test $($test)* } };
    (@$kind:ident $($test:ident)*) => {$(
        #[pipewright_test_macros::$kind]
        fn $test() {
            let theirs = with_std::$test().expect("std can do it");
            let ours = with_pipewright::$test().expect("pipewright can do it");
            assert_eq!(theirs.len(), ours.len());
            for (theirs, ours) in theirs.iter().zip(&ours) {
                pretty_eq(theirs, ours);
            }
        }
    )*};
}

pub(crate) use same_with_both;

#[track_caller]
pub(crate) fn pretty_eq(theirs: &str, ours: &str) {
    assert!(theirs == ours, "std: {theirs}\nours: {ours}");
}

#[watched_test]
fn an_error_has_no_raw_os_error() {
    let theirs = std::process::Command::new("/no/such/program").spawn().unwrap_err();
    let ours = Command::new("/no/such/program").spawn().unwrap_err();
    assert_eq!((theirs.raw_os_error(), ours.raw_os_error()), (Some(libc::ENOENT), None));
}

#[isolated_test]
fn a_dropped_child_leaves_no_zombie() {
    drop(Command::new("true").spawn().unwrap());
    watchdog::until("the child is reaped", || count::children().is_empty());
    let theirs = std::process::Command::new("true").spawn().unwrap();
    watchdog::until("std leaves a zombie", || count::zombies() == [theirs.id()]);
    // Reaped, for the harness.
    let mut theirs = theirs;
    theirs.wait().unwrap();
}

#[isolated_test]
fn a_child_holds_one_more_handle_than_in_std() {
    let before = count::handles();
    let mut theirs = std::process::Command::new("true").spawn().unwrap();
    assert_eq!(count::handles(), before);
    theirs.wait().unwrap();
    let ours = Command::new("true").spawn().unwrap();
    let expected = if pipewright_tests::skip::is_forced_off("pidfd") { 0 } else { 1 };
    assert_eq!(count::handles(), before + expected);
    drop(ours);
    watchdog::until("it is closed", || count::handles() == before);
}

// Alone, as each test that writes a program and runs it: a process that another thread has just forked has the file
// open for writing until its exec, and the program is busy as long.
#[isolated_test]
fn a_busy_program_is_retried() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("program");
    fs::copy(TRUE, &path).unwrap();
    let writer = fs::OpenOptions::new().append(true).open(&path).unwrap();
    let since = std::time::Instant::now();
    let error = Command::new(&path).spawn().unwrap_err();
    assert!(since.elapsed() >= Duration::from_millis(127));
    assert_eq!(error.kind(), io::ErrorKind::ExecutableFileBusy);
    drop(writer);
    assert!(Command::new(&path).status().unwrap().success());
}

#[isolated_test]
fn a_script_without_a_shebang_is_never_run_by_a_shell() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("script");
    let mut file = fs::File::create(&path).unwrap();
    file.write_all(b"echo by a shell\n").unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o755)).unwrap();
    drop(file);
    let mut theirs = std::process::Command::new(&path);
    assert_eq!(theirs.output().unwrap_err().raw_os_error(), Some(libc::ENOEXEC));
    let mut ours = Command::new(&path);
    assert!(ours.output().is_err());
    // SAFETY: they do nothing.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut theirs, || Ok(()));
        ours.pre_exec(|| Ok(()));
    }
    if cfg!(target_env = "gnu") {
        assert_eq!(theirs.output().unwrap().stdout, b"by a shell\n", "execvp of the C library");
    }
    let inside = ours.output().unwrap_err().into_inner().unwrap();
    assert!(inside.to_string().contains("exec format error: "), "{inside}");
}

#[watched_test]
fn status_drains_streams_that_are_piped() {
    let mut command = Command::new("sh");
    // More than a pipe holds: with std it would wait for ever.
    command.args(["-c", "head -c 300000 /dev/zero; exit 6"]).stdout(Stdio::piped());
    assert_eq!(command.status().unwrap().code(), Some(6));
}

#[watched_test]
fn exec_with_a_piped_stream_is_refused() {
    let error = Command::new("true").stdout(Stdio::piped()).exec();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
}

#[watched_test]
fn a_command_with_a_user_is_not_forked() {
    if !pipewright_tests::skip::is_root() {
        pipewright_tests::skip::skipped(
            pipewright_tests::skip::Need::Root,
            "only root becomes another user",
        );
        return;
    }
    let output = Command::new("id").arg("-u").uid(65534).gid(65534).output().unwrap();
    assert_eq!(output.stdout, b"65534\n");
    let groups = Command::new("id").arg("-G").uid(65534).gid(65534).output().unwrap();
    assert_eq!(groups.stdout, b"65534\n", "the groups of root are gone");
}

#[watched_test]
fn options_of_the_extended_command_apply() {
    let mut command = Command::new("sleep");
    command.arg("60").extended().timeout(Duration::from_millis(50));
    assert!(!command.status().unwrap().success());
    assert!(!command.output().unwrap().status.success());
    assert!(!command.spawn().unwrap().wait().unwrap().success());
    let mut limited = Command::new("seq");
    limited.arg("1000").extended().limit(pipewright::Limit::keep_head(4));
    assert_eq!(limited.output().unwrap().stdout, b"1\n2\n");
}

#[watched_test]
fn commands_and_children_convert_both_ways() {
    let mut theirs = std::process::Command::new("sh");
    theirs.args(["-c", "echo $A; pwd"]).env("A", "1").current_dir("/");
    let mut ours = Command::from(theirs);
    assert_eq!(ours.output().unwrap().stdout, b"1\n/\n");
    ours.stdout(Stdio::null()).arg0("name");
    let mut back = std::process::Command::from(ours);
    assert!(back.output().unwrap().stdout.is_empty(), "stdio goes along");

    let mut extended = pipewright::Command::from(Command::new("cat"));
    extended.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = pipewright::process::Child::from(extended.spawn().unwrap());
    child.stdin.as_mut().unwrap().write_all(b"there and back").unwrap();
    let child = pipewright::Child::from(child);
    assert_eq!(child.read_all_text().unwrap().stdout, "there and back");
    assert_eq!(Command::from(extended).stdin(Stdio::null()).status().unwrap().code(), Some(0));
}

/// Runs the calling test again in a namespace in which root may not drop its groups.
fn where_groups_stay(test: &str, body: impl FnOnce()) {
    const MARK: &str = "PIPEWRIGHT_WHERE_GROUPS_STAY";
    if std::env::var_os(MARK).is_some() {
        return body();
    }
    let in_namespace = ["--user", "--map-root-user"];
    let can = std::process::Command::new("unshare").args(in_namespace).arg("true").output();
    if !can.is_ok_and(|output| output.status.success()) {
        pipewright_tests::skip::skipped(
            pipewright_tests::skip::Need::UserNamespace,
            "user namespaces cannot be had",
        );
        return;
    }
    let mut again = std::process::Command::new("unshare");
    again.args(in_namespace).arg(std::env::current_exe().unwrap());
    let output = again.args([test, "--exact", "--test-threads=1"]).env(MARK, "").output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}");
}

#[watched_test]
fn groups_that_cannot_be_dropped_are_kept_as_in_std() {
    let test = "std_process::groups_that_cannot_be_dropped_are_kept_as_in_std";
    where_groups_stay(test, || {
        let mut theirs = std::process::Command::new("true");
        std::os::unix::process::CommandExt::uid(&mut theirs, 0);
        assert!(theirs.status().unwrap().success());
        assert!(Command::new("true").uid(0).status().unwrap().success());
        let error = pipewright::Command::new("true").uid(0).status().unwrap_err();
        assert_eq!(*error.kind(), pipewright::ErrorKind::PermissionDenied, "{error}");
    });
}

/// Commands that fail to start: their programs and setters.
macro_rules! failures {
    ($($process:ident)::*) => {{
        use $($process)::*::Command;
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, mode: u32, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
            path
        };
        let spawned = |mut command: Command| command.spawn().err();
        let mut errors: Vec<(&str, Option<io::Error>)> = vec![
            ("not found in PATH", spawned(Command::new("no-such-program"))),
            ("no such file", spawned(Command::new("/no/such/program"))),
            ("empty name", spawned(Command::new(""))),
            ("a directory", spawned(Command::new("/"))),
            ("not executable", spawned(Command::new(file("plain", 0o644, "text")))),
            ("no format", spawned(Command::new(file("format", 0o755, "\u{1}\u{2}")))),
            ("no interpreter", spawned(Command::new(file("script", 0o755, "#!/no/such/sh\n")))),
            ("below a file", spawned(Command::new(file("file", 0o644, "").join("program")))),
        ];
        let mut missing = Command::new("true");
        missing.current_dir("/no/such/dir");
        errors.push(("no directory", spawned(missing)));
        let mut file_as_dir = Command::new("true");
        file_as_dir.current_dir("/dev/null");
        errors.push(("a file as directory", spawned(file_as_dir)));
        let mut nul = Command::new("true");
        nul.arg("a\0b");
        errors.push(("NUL in an argument", spawned(nul)));
        let mut nul = Command::new("true");
        nul.env("A\0", "b");
        errors.push(("NUL in a variable", spawned(nul)));
        let mut long = Command::new("true");
        long.arg("x".repeat(200 << 10));
        errors.push(("too long", spawned(long)));
        errors.push(("a name that no directory has", spawned(Command::new("x".repeat(5_000)))));
        errors
    }};
}

#[isolated_test]
fn kinds_are_those_of_std_and_the_number_is_inside() {
    let (theirs, ours) = (failures!(std::process), failures!(pipewright::process));
    assert_eq!(theirs.len(), ours.len());
    for ((name, theirs), (_, ours)) in theirs.into_iter().zip(ours) {
        let (theirs, ours) = (theirs.expect(name), ours.expect(name));
        assert_eq!(ours.kind(), theirs.kind(), "{name}: {theirs} | {ours}");
        let inside = ours.get_ref().and_then(|inside| inside.downcast_ref::<pipewright::Error>());
        let inside = inside.unwrap_or_else(|| panic!("{name}: nothing in {ours:?}"));
        if !matches!(name, "empty name" | "NUL in an argument" | "NUL in a variable") {
            assert_eq!(inside.raw_os_error(), theirs.raw_os_error(), "{name}");
        }
    }
}

#[watched_test]
fn the_inner_error_has_more_facts_than_std() {
    let error = pipewright::process::Command::new("no-such-program").status().unwrap_err();
    assert!(error.to_string().contains("not found in PATH (searched"), "{error}");
    let inside = error.into_inner().unwrap().downcast::<pipewright::Error>().unwrap();
    assert!(matches!(inside.kind(), pipewright::ErrorKind::NotFound { .. }), "{inside}");
}

/// Commands of every shape, as both of std's formats show them.
macro_rules! shown {
    ($($process:ident)::*, $($unix:ident)::*) => {{
        use std::os::unix::ffi::OsStrExt as _;
        use $($unix)::*::CommandExt as _;
        use $($process)::*::{Command, Stdio};

        let of = |set: fn(&mut Command) -> &mut Command| {
            let mut command = Command::new("program");
            set(&mut command);
            [format!("{command:?}"), format!("{command:#?}")]
        };
        [
            of(|it| it),
            of(|it| it.args(["a b", "\"quoted\"", "", "\u{e9}\n"])),
            of(|it| it.arg(std::ffi::OsStr::from_bytes(b"\xff"))),
            of(|it| it.env("KEY", "some value").env("A", "1")),
            of(|it| it.env_remove("GONE").env_remove("ALSO").env("KEY", "v")),
            of(|it| it.env_clear()),
            of(|it| it.env("LOST", "1").env_clear().env("KEY", "v")),
            of(|it| it.current_dir("/some dir")),
            of(|it| it.arg0("other").arg("x")),
            of(|it| it.current_dir("/").env("A", "1").arg0("other").arg("x")),
            of(|it| it.uid(1).gid(2).process_group(0)),
            of(|it| it.process_group(77)),
            of(|it| it.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit())),
            of(|it| it.arg("nul\0")),
        ]
    }};
}

#[watched_test]
fn commands_are_shown_as_std_shows_them() {
    let theirs = shown!(std::process, std::os::unix::process);
    let ours = shown!(pipewright::process, pipewright::process::unix);
    for (theirs, ours) in theirs.iter().flatten().zip(ours.iter().flatten()) {
        pretty_eq(theirs, ours);
    }
}

#[watched_test]
fn secrets_are_not_shown() {
    let mut command = pipewright::process::Command::new("login");
    command.arg("--password").extended().secret_arg("hunter2");
    assert_eq!(format!("{command:?}"), r#""login" "--password" "***""#);
    assert!(!format!("{command:#?}").contains("hunter2"));
}

/// A program, once with each library. Everything that std's `Command` has and that makes sense
/// without `unsafe` is in it.
macro_rules! program {
    ($name:ident, $($library:tt)*) => {
        #[allow(unused_mut, reason = "ours wait and kill by &self")]
        mod $name {
            #[allow(unused_imports, reason = "the same program for both libraries")]
            use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
            use std::ffi::OsStr;
            use std::io::{self, Read as _, Write as _};
            use $($library)*::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};

            pub(super) fn run() -> io::Result<Vec<String>> {
                let mut results = Vec::new();

                let status: ExitStatus = Command::new("sh").arg("-c").arg("exit 3").status()?;
                results.push(format!("{status} {:?} {}", status.code(), status.success()));

                let output: Output = Command::new("sh")
                    .args(["-c", "echo out; echo err >&2; kill -9 $$"])
                    .output()?;
                results.push(format!("{:?} {:?} {:?}", output.stdout, output.stderr, output.status.signal()));

                let mut command = Command::new("cat");
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
                let mut child: Child = command.spawn()?;
                child.stdin.as_mut().unwrap().write_all(b"through")?;
                drop(child.stdin.take());
                let mut text = String::new();
                let mut stdout: ChildStdout = child.stdout.take().unwrap();
                stdout.read_to_string(&mut text)?;
                results.push(format!("{text} {}", child.wait()?));
                results.push(format!("{:?}", child.try_wait()?.map(|status| status.success())));

                let mut killed = Command::new("sleep").arg("60").spawn()?;
                assert!(killed.id() > 0 && killed.try_wait()?.is_none());
                killed.kill()?;
                results.push(format!("{:?}", killed.wait()?.signal()));

                let mut first = Command::new("echo").arg("piped").stdout(Stdio::piped()).spawn()?;
                let second = Command::new("tr")
                    .args(["a-z", "A-Z"])
                    .stdin(first.stdout.take().unwrap())
                    .output()?;
                first.wait()?;
                results.push(String::from_utf8_lossy(&second.stdout).into_owned());

                let mut shown = Command::new("program");
                shown.args(["a b", "c"]).env("KEY", "value").env_remove("OTHER").current_dir("/");
                let args: Vec<&OsStr> = shown.get_args().collect();
                let envs: Vec<_> = shown.get_envs().collect();
                results.push(format!("{:?} {args:?} {envs:?} {:?}", shown.get_program(), shown.get_current_dir()));
                results.push(format!("{:?}", Command::new("x").args(["a b", "c"])));

                let mut environment = Command::new("env");
                environment.env_clear().env("B", "2").env("A", "1").envs([("C", "3")]);
                environment.env("PATH", "/usr/bin:/bin").arg0("env");
                results.push(String::from_utf8_lossy(&environment.output()?.stdout).into_owned());

                let file = std::fs::File::open("/dev/null")?;
                let from_file = Command::new("cat").stdin(file).output()?;
                results.push(format!("{:?}", from_file.stdout));

                let error = Command::new("no-such-program").spawn().unwrap_err();
                results.push(format!("{}", error.kind() == io::ErrorKind::NotFound));
                let start = || -> io::Result<Child> {
                    let child = Command::new("/no/such").spawn()?;
                    Ok(child)
                };
                let missing = start();
                results.push(format!("{:?}", missing.unwrap_err().kind()));
                let group = Command::new("sh")
                    .args(["-c", "ps -o pgid= -p $$ | tr -d ' ' | grep -x $$ >/dev/null"])
                    .process_group(0)
                    .status()?;
                results.push(format!("{group}"));
                let raw = ExitStatus::from_raw(256);
                results.push(format!("{raw} {}", raw.into_raw()));
                let child = Command::new("sh").args(["-c", "echo all; exit 2"]).stdout(Stdio::piped()).spawn()?;
                let all = child.wait_with_output()?;
                results.push(format!("{:?} {:?}", all.stdout, all.status.code()));
                Ok(results)
            }
        }
    };
}

program!(with_std, std::process);
program!(with_pipewright, pipewright);

#[watched_test]
fn a_program_written_for_std_behaves_the_same() {
    let (theirs, ours) = (with_std::run().unwrap(), with_pipewright::run().unwrap());
    assert_eq!(theirs.len(), ours.len());
    for (theirs, ours) in theirs.iter().zip(&ours) {
        assert_eq!(theirs, ours);
    }
}

#[watched_test]
fn commands_convert_both_ways() {
    let mut theirs = std::process::Command::new("sh");
    theirs.args(["-c", "echo $A-$B; pwd"]).env("A", "1").env_remove("B").current_dir("/");
    let mut ours = pipewright::Command::from(theirs);
    assert_eq!(ours.read().unwrap(), "1-\n/");
    let mut back = std::process::Command::from(ours);
    assert_eq!(back.output().unwrap().stdout, b"1-\n/\n");
}

#[watched_test]
fn statuses_convert_both_ways() {
    for raw in [0, 0x100, 0x2a00, 9, 0x8b] {
        let ours = pipewright::ExitStatus::from_raw(raw);
        let theirs = std::process::ExitStatus::from(ours);
        assert_eq!(pipewright::ExitStatus::from(theirs), ours);
        assert_eq!((ours.code(), ours.success()), (theirs.code(), theirs.success()));
        let numbers = std::os::unix::process::ExitStatusExt::signal(&theirs);
        assert_eq!(ours.signal(), numbers);
        assert_eq!(ours.exit_ok().is_ok(), raw == 0);
    }
}

#[watched_test]
fn the_command_differs_from_std_as_documented() {
    use pipewright::{Command, Linger};
    let kind = |command: &mut Command| std::io::Error::from(command.spawn().unwrap_err()).kind();
    for name in ["", "A=B"] {
        let refused = kind(Command::new("true").env(name, "x"));
        assert_eq!(refused, std::io::ErrorKind::InvalidInput, "{name:?}");
    }
    assert_eq!(kind(&mut Command::new("")), std::io::ErrorKind::InvalidInput);

    // Not before the first run has lingered.
    let dir = tempfile::tempdir().unwrap();
    let mut held = Command::new("sh");
    let waits = r#"until [ -e go ] || [ ! -e "$PWD" ]; do sleep 0.02; done"#;
    held.args(["-c", &format!("echo early; ({waits}; echo late) &")]);
    let output = held.current_dir(dir.path()).output().unwrap();
    assert_eq!((output.stdout.as_slice(), output.held_open), (&b"early\n"[..], true));
    fs::write(dir.path().join("go"), "").unwrap();
    assert_eq!(held.linger(Linger::UntilEof).output().unwrap().stdout, b"early\nlate\n");
}
