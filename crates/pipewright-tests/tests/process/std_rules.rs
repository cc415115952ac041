//! A program written for std's `Command` compiles and works when its `use` line is changed.

use pipewright_test_macros::watched_test;

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
                let group = Command::new("sh").args(["-c", "ps -o pgid= -p $$ | tr -d ' ' | grep -x $$ >/dev/null"]).process_group(0).status()?;
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

    // Later than the linger.
    let mut held = Command::new("sh");
    held.args(["-c", "(sleep 1.5; echo late) & echo early"]);
    let output = held.output().unwrap();
    assert_eq!((output.stdout.as_slice(), output.held_open), (&b"early\n"[..], true));
    assert_eq!(held.linger(Linger::UntilEof).output().unwrap().stdout, b"early\nlate\n");
}
