//! Every stable item of `std::process`, in a program that is compiled twice.

use super::{pretty_eq, same_with_both};

/// A program, once with each library.
macro_rules! program {
    ($name:ident, $($process:ident)::*, $($unix:ident)::*) => {
        mod $name {
            use std::ffi::{OsStr, OsString};
            use std::fs::File;
            use std::io::{self, Read as _, Write as _};
            use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, IntoRawFd as _, OwnedFd};
            use std::path::Path;
            use $($unix)::*::{CommandExt as _, ExitStatusExt, parent_id};
            use $($process)::*::{self as process, Child, Command, CommandArgs, CommandEnvs, Output, Stdio};
            use $($process)::*::{ChildStderr, ChildStdin, ChildStdout, ExitCode, ExitStatus, Termination};

            pub(super) type Results = io::Result<Vec<String>>;

            pub(super) fn statuses() -> Results {
                let status: ExitStatus = Command::new("sh").arg("-c").arg("exit 3").status()?;
                let mut results = vec![format!("{status} {status:?} {:?} {}", status.code(), status.success())];
                let killed = Command::new("sh").args(["-c", "kill -9 $$"]).status()?;
                results.push(format!("{killed} {:?} {}", killed.signal(), killed.core_dumped()));
                let made = ExitStatus::from_raw(0x1300);
                results.push(format!("{made} {} {:?} {}", made.into_raw(), made.stopped_signal(), made.continued()));
                results.push(format!("{:?}", ExitStatus::default()));
                Ok(results)
            }

            pub(super) fn outputs_are_built_and_matched() -> Results {
                let Output { status, stdout, stderr } =
                    Command::new("sh").args(["-c", "echo out; echo err >&2; exit 4"]).output()?;
                let built = Output { status, stdout: stdout.clone(), stderr: stderr.clone() };
                // Other code that only knows std.
                fn takes_std(output: std::process::Output) -> std::process::ExitStatus {
                    output.status
                }
                let same = built == Output { status, stdout, stderr };
                Ok(vec![format!("{built:?} {same}"), takes_std(built).to_string()])
            }

            pub(super) fn output_reads_to_the_end_though_the_child_has_exited() -> Results {
                let output = Command::new("sh").args(["-c", "(sleep 0.6; echo late) & echo early"]).output()?;
                Ok(vec![String::from_utf8_lossy(&output.stdout).into_owned()])
            }

            pub(super) fn a_child_and_its_streams() -> Results {
                struct KeptChild {
                    child: Child,
                    input: Option<ChildStdin>,
                    output: Option<ChildStdout>,
                    errors: Option<ChildStderr>,
                }
                let mut child = Command::new("sh")
                    .args(["-c", "cat; echo done >&2"])
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .spawn()?;
                let mut results = vec![format!("{child:?}")];
                let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
                let mut kept = KeptChild { child, input, output, errors };
                assert!(kept.child.id() > 0 && kept.child.try_wait()?.is_none());
                if let Some(mut input) = kept.input.take() {
                    input.write_all(b"through")?;
                    assert!(input.as_fd().as_raw_fd() > 2);
                }
                let mut text = String::new();
                kept.output.as_mut().unwrap().read_to_string(&mut text)?;
                kept.errors.as_mut().unwrap().read_to_string(&mut text)?;
                results.push(text);
                results.push(format!("{:?} {:?}", kept.child.wait()?, kept.child.try_wait()?));
                results.push(format!("{:?}", kept.child.kill().is_ok()));
                Ok(results)
            }

            pub(super) fn wait_closes_stdin() -> Results {
                let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
                Ok(vec![format!("{} {:?}", child.wait()?, child.stdin.is_none())])
            }

            pub(super) fn wait_with_output_reads_what_is_piped() -> Results {
                let child = Command::new("sh")
                    .args(["-c", "cat; echo err >&2; exit 5"])
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()?;
                let one = child.wait_with_output()?;
                let mut child = Command::new("sh")
                    .args(["-c", "(sleep 0.5; echo late) & echo early"])
                    .stdout(Stdio::piped())
                    .spawn()?;
                child.wait()?;
                let two = child.wait_with_output()?;
                Ok(vec![format!("{one:?}"), format!("{two:?}")])
            }

            pub(super) fn kill_reaches_the_child_alone() -> Results {
                let mut child = Command::new("sh")
                    .args(["-c", "(sleep 0.2; echo not killed) & echo started; exec sleep 600"])
                    .stdout(Stdio::piped())
                    .spawn()?;
                let mut first = [0; 8];
                child.stdout.as_mut().unwrap().read_exact(&mut first)?;
                child.kill()?;
                let status = child.wait()?;
                // The other process holds the pipe, and writes to it later.
                let rest = child.wait_with_output()?;
                Ok(vec![format!("{status} {rest:?}")])
            }

            #[cfg_attr(pipewright_std_pipes, expect(clippy::incompatible_msrv, reason = "it has them"))]
            pub(super) fn stdio_comes_from_everything() -> Results {
                fn with<T: Into<Stdio>>(stdin: T) -> io::Result<String> {
                    let output = Command::new("cat").stdin(stdin).output()?;
                    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
                }
                let file = || -> io::Result<File> {
                    let mut file = tempfile::tempfile()?;
                    file.write_all(b"filed")?;
                    io::Seek::rewind(&mut file)?;
                    Ok(file)
                };
                let mut results = vec![with(file()?)?, with(OwnedFd::from(file()?))?, with(Stdio::null())?];
                // SAFETY: nothing else owns the number from here on.
                results.push(with(unsafe { Stdio::from_raw_fd(file()?.into_raw_fd()) })?);
                let first = Command::new("echo").arg("one").stdout(Stdio::piped()).spawn()?;
                results.push(with(first.stdout.unwrap())?);
                let first = Command::new("sh").args(["-c", "echo two >&2"]).stderr(Stdio::piped()).spawn()?;
                results.push(with(first.stderr.unwrap())?);
                let mut last = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
                Command::new("echo").arg("three").stdout(last.stdin.take().unwrap()).status()?;
                results.push(format!("{:?}", last.wait_with_output()?));
                let swapped = Command::new("sh")
                    .args(["-c", "readlink /proc/self/fd/1; readlink /proc/self/fd/2"])
                    .stderr(io::stdout())
                    .output()?;
                results.push(format!("{}", swapped.stdout.is_empty()));
                let to_err = Command::new("true").stdout(io::stderr()).status()?;
                results.push(format!("{to_err} {:?} {:?}", Stdio::inherit(), Stdio::from(file()?)));
                // Rust 1.87.
                #[cfg(pipewright_std_pipes)]
                {
                    let (reader, mut writer) = io::pipe()?;
                    writer.write_all(b"std's pipe")?;
                    drop(writer);
                    results.push(with(reader)?);
                    let (mut reader, writer) = io::pipe()?;
                    // The command owns the writer, and goes first.
                    let status = Command::new("echo").arg("written").stdout(writer).status()?;
                    let mut text = String::new();
                    reader.read_to_string(&mut text)?;
                    results.push(format!("{status} {text}"));
                }
                Ok(results)
            }

            pub(super) fn getters_and_iterators() -> Results {
                let mut command = Command::new("program");
                command.args(["a b", "c"]).env("KEY", "value").env_remove("OTHER").envs([("A", "1")]).current_dir("/");
                let args: CommandArgs<'_> = command.get_args();
                let mut results = vec![format!("{args:?} {} {:?}", args.len(), args.size_hint())];
                let envs: CommandEnvs<'_> = command.get_envs();
                results.push(format!("{envs:?} {}", envs.len()));
                let program: &OsStr = command.get_program();
                let dir: Option<&Path> = command.get_current_dir();
                results.push(format!("{program:?} {dir:?} {:?}", command.get_args().collect::<Vec<_>>()));
                command.env_clear().env_remove("A").env("B", "2");
                results.push(format!("{:?}", command.get_envs().collect::<Vec<_>>()));
                Ok(results)
            }

            pub(super) fn the_environment_of_the_child() -> Results {
                let mut command = Command::new("env");
                command.env_clear().env("B", "2").env("A", "1").envs([("C", "3")]).env_remove("C");
                command.env("PATH", "/usr/bin:/bin").arg0("other");
                let mut results = vec![String::from_utf8_lossy(&command.output()?.stdout).into_owned()];
                // Names that no shell could set are passed on as they are.
                let odd = Command::new("/usr/bin/env").env_clear().env("A=B", "x").env("", "y").output()?;
                results.push(String::from_utf8_lossy(&odd.stdout).into_owned());
                Ok(results)
            }

            pub(super) fn closures_and_generic_functions() -> Results {
                fn run<S: AsRef<OsStr>>(
                    program: S,
                    set: impl FnOnce(&mut Command) -> &mut Command,
                ) -> io::Result<Child> {
                    let mut command = Command::new(program);
                    set(&mut command).spawn()
                }
                let args: Vec<OsString> = vec!["-c".into(), "exit 9".into()];
                let mut child = run("sh", |command| command.args(&args).stdin(Stdio::null()))?;
                let made: Result<ExitStatus, io::Error> = child.wait();
                let boxed: Result<Child, Box<dyn std::error::Error>> = run("sh", |it| it.arg("-c")).map_err(Into::into);
                drop(boxed.map_err(|error| io::Error::other(error.to_string()))?.wait());
                let reports = |code: ExitCode| code.report() == ExitCode::SUCCESS;
                results_of(&[format!("{made:?} {} {:?}", reports(ExitCode::from(0)), ExitCode::FAILURE)])
            }

            fn results_of(results: &[String]) -> Results {
                Ok(results.to_vec())
            }

            pub(super) fn handles_are_inherited_as_in_std() -> Results {
                let file = tempfile::tempfile()?;
                // SAFETY: numbers; the copy is ours. Not close-on-exec.
                let kept = unsafe { libc::dup(file.as_raw_fd()) };
                let check = format!("test -e /dev/fd/{kept} && ! test -e /dev/fd/{}", file.as_raw_fd());
                let status = Command::new("sh").args(["-c", &check]).status()?;
                // SAFETY: as above.
                drop(unsafe { OwnedFd::from_raw_fd(kept) });
                Ok(vec![status.to_string()])
            }

            pub(super) fn relative_programs_are_found_in_the_childs_directory() -> Results {
                let dir = tempfile::tempdir()?;
                let script = dir.path().join("here");
                std::fs::write(&script, "#!/bin/sh\necho found\n")?;
                std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
                let in_dir = Command::new("./here").current_dir(dir.path()).output()?;
                let by_path = Command::new("here").env("PATH", dir.path()).output()?;
                let not_here = Command::new("./here").output().map_err(|error| error.kind());
                Ok(vec![format!("{in_dir:?} {by_path:?} {not_here:?}")])
            }

            pub(super) fn a_command_runs_again_and_again() -> Results {
                let mut command = Command::new("echo");
                let one = command.arg("one").output()?;
                let two = command.arg("two").stdout(Stdio::piped()).spawn()?.wait_with_output()?;
                Ok(vec![format!("{one:?} {two:?} {}", command.status()?)])
            }

            pub(super) fn other_items_exist() -> Results {
                fn goes_anywhere<T: Send + Sync + Unpin + 'static>() {}
                fn survives_panics<T: std::panic::UnwindSafe + std::panic::RefUnwindSafe>() {}
                goes_anywhere::<(Command, Child, Stdio, Output)>();
                survives_panics::<(Child, Stdio, Output)>();
                let same_parent = parent_id() == std::os::unix::process::parent_id();
                let _never: fn(i32) -> ! = process::exit;
                let _nor: fn() -> ! = process::abort;
                Ok(vec![format!("{} {same_parent}", process::id() == std::process::id())])
            }
        }
    };
}

program!(with_std, std::process, std::os::unix::process);
program!(with_pipewright, pipewright::process, pipewright::process::unix);

same_with_both! {
    statuses
    outputs_are_built_and_matched
    output_reads_to_the_end_though_the_child_has_exited
    a_child_and_its_streams
    wait_closes_stdin
    wait_with_output_reads_what_is_piped
    kill_reaches_the_child_alone
    stdio_comes_from_everything
    getters_and_iterators
    the_environment_of_the_child
    closures_and_generic_functions
    handles_are_inherited_as_in_std
    a_command_runs_again_and_again
    other_items_exist
}

// It writes a program and runs it.
same_with_both! { alone relative_programs_are_found_in_the_childs_directory }
