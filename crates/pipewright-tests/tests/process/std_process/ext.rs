//! The Unix extensions: `pre_exec` and the other methods of `CommandExt`.

use pipewright_test_macros::{isolated_test, watched_test};

use std::io;

use super::{pretty_eq, same_with_both};

/// A program, once with each library.
macro_rules! program {
    ($name:ident, $($process:ident)::*, $($unix:ident)::*) => {
        mod $name {
            use std::io;
            use $($unix)::*::CommandExt;
            use $($process)::*::{Command, Stdio};

            type Results = io::Result<Vec<String>>;

            fn say(text: &'static str) -> impl FnMut() -> io::Result<()> {
                move || {
                    // SAFETY: a live text and its length.
                    match unsafe { libc::write(1, text.as_ptr().cast(), text.len()) } {
                        -1 => Err(io::Error::last_os_error()),
                        _ => Ok(()),
                    }
                }
            }

            pub(super) fn closures_run_in_order_with_everything_in_place() -> Results {
                let dir = tempfile::tempdir()?;
                let mut command = Command::new("sh");
                let script = "echo $0 $KEY; pwd; ps -o pgid= -p $$ | tr -d ' ' | grep -x $$ > /dev/null && echo own";
                command.args(["-c", script]);
                command.env("KEY", "value").current_dir(dir.path()).arg0("other").process_group(0);
                command.stderr(Stdio::null());
                let path = dir.path().to_owned();
                // SAFETY: each makes calls that are async-signal-safe; memory is not allocated but by `current_dir`.
                unsafe {
                    command.pre_exec(say("one\n")).pre_exec(say("two\n")).pre_exec(move || {
                        let leads = libc::getpgrp() == libc::getpid();
                        let is_there = std::env::current_dir()? == path;
                        if leads && is_there { say("three\n")() } else { Err(io::ErrorKind::Other.into()) }
                    });
                }
                let output = command.output()?;
                let text = String::from_utf8_lossy(&output.stdout).replace(dir.path().to_str().unwrap(), "DIR");
                // They run for each child.
                let again = command.output()?.stdout.len() == output.stdout.len();
                Ok(vec![format!("{text} {} {again}", output.status)])
            }

            pub(super) fn errors_of_closures_are_returned_unchanged() -> Results {
                let mut results = Vec::new();
                for errno in [libc::EPERM, libc::ENOENT, libc::ETXTBSY, libc::ERANGE] {
                    let mut command = Command::new("true");
                    // SAFETY: they do nothing.
                    unsafe {
                        command.pre_exec(|| Ok(())).pre_exec(move || Err(io::Error::from_raw_os_error(errno)));
                        command.pre_exec(|| panic!("nothing comes after an error"));
                    }
                    let error = command.spawn().unwrap_err();
                    results.push(format!("{error} {:?} {:?}", error.kind(), error.raw_os_error()));
                }
                let mut command = Command::new("true");
                // SAFETY: it does nothing.
                unsafe { command.pre_exec(|| Err(io::ErrorKind::TimedOut.into())) };
                let error = command.status().unwrap_err();
                results.push(format!("{error} {:?}", error.raw_os_error()));
                Ok(results)
            }

            pub(super) fn closures_may_change_stdio_and_the_mask() -> Results {
                let mut command = Command::new("sh");
                command.args(["-c", "echo err >&2; grep SigBlk /proc/self/status"]).stderr(Stdio::null());
                // SAFETY: numbers, and calls that are async-signal-safe.
                unsafe {
                    command.pre_exec(|| {
                        let mut set = std::mem::zeroed();
                        libc::sigemptyset(&raw mut set);
                        libc::sigaddset(&raw mut set, libc::SIGUSR1);
                        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
                        // Its stderr goes where its stdout goes.
                        if libc::dup2(1, 2) < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
                    });
                }
                Ok(vec![format!("{:?}", command.output()?)])
            }

            pub(super) fn a_missing_program_is_reported_after_the_closures_ran() -> Results {
                let mut command = Command::new("/no/such/program");
                // SAFETY: it does nothing.
                unsafe { command.pre_exec(|| Ok(())) };
                Ok(vec![format!("{:?}", command.spawn().unwrap_err().kind())])
            }

            #[allow(deprecated, reason = "std has it, so we have it")]
            pub(super) fn before_exec_exists() -> Results {
                let mut command = Command::new("true");
                // SAFETY: as pre_exec.
                unsafe { command.before_exec(say("before")) };
                Ok(vec![format!("{:?}", command.output()?)])
            }

            pub(super) fn generic_code_takes_the_trait() -> Results {
                fn named<C: CommandExt>(command: &mut C) {
                    command.arg0("named");
                }
                let mut command = Command::new("sh");
                named(&mut command);
                let own = command.args(["-c", "echo $0"]).output()?;
                Ok(vec![format!("{own:?}")])
            }

            /// Returns the mask and the ignored signals of a child of a thread that blocks and ignores some.
            #[cfg(target_os = "linux")]
            pub(super) fn signals() -> Results {
                let mut results = Vec::new();
                for fork in [false, true] {
                    let mut command = Command::new("cat");
                    command.arg("/proc/self/status");
                    if fork {
                        // SAFETY: it does nothing.
                        unsafe { command.pre_exec(|| Ok(())) };
                    }
                    let status = String::from_utf8_lossy(&command.output()?.stdout).into_owned();
                    for name in ["SigBlk", "SigIgn", "SigCgt"] {
                        let line = status.lines().find(|line| line.starts_with(name)).unwrap_or("");
                        let mask = u64::from_str_radix(line.split_whitespace().nth(1).unwrap_or(""), 16);
                        // 32 and 33 are the C library's own, and its posix_spawn ignores them.
                        results.push(format!("{name} {:x}", mask.map_err(io::Error::other)? & !(0b11 << 31)));
                    }
                }
                Ok(results)
            }

            pub(super) fn exec_again() -> io::Error {
                let mut command = Command::new("sh");
                command.args(["-c", "echo test x ... ok; echo '1 passed'; echo $0 $KEY; test $KEY = value"]);
                command.arg0("renamed").env("KEY", "value");
                // SAFETY: it makes calls that are async-signal-safe.
                unsafe { command.pre_exec(say("closure\n")) };
                command.exec()
            }

            pub(super) fn exec_fails() -> Results {
                let error = Command::new("/no/such/program").exec();
                let mut refused = Command::new("true");
                // SAFETY: it does nothing.
                unsafe { refused.pre_exec(|| Err(io::Error::from_raw_os_error(libc::EDOM))) };
                Ok(vec![format!("{:?} {:?}", error.kind(), refused.exec().raw_os_error())])
            }
        }
    };
}

program!(with_std, std::process, std::os::unix::process);
program!(with_pipewright, pipewright::process, pipewright::process::unix);

same_with_both! {
    closures_run_in_order_with_everything_in_place
    errors_of_closures_are_returned_unchanged
    closures_may_change_stdio_and_the_mask
    a_missing_program_is_reported_after_the_closures_ran
    before_exec_exists
    generic_code_takes_the_trait
    exec_fails
}

#[cfg(target_os = "linux")]
#[isolated_test]
fn mask_and_ignored_signals_are_those_that_std_gives() {
    // SAFETY: this process runs nothing but this test.
    unsafe {
        libc::signal(libc::SIGHUP, libc::SIG_IGN);
        let mut blocked = std::mem::zeroed();
        libc::sigemptyset(&raw mut blocked);
        libc::sigaddset(&raw mut blocked, libc::SIGUSR2);
        libc::sigaddset(&raw mut blocked, libc::SIGCHLD);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, std::ptr::null_mut());
    }
    let (theirs, ours) = (with_std::signals().unwrap(), with_pipewright::signals().unwrap());
    assert_eq!(theirs.len(), 6, "{theirs:?}");
    pretty_eq(&theirs.join("\n"), &ours.join("\n"));
    let mut own = pipewright::Command::new("cat");
    let own = own.arg("/proc/self/status").read().unwrap();
    assert!(own.contains("SigBlk:\t0000000000000000"), "the other command empties the mask: {own}");
}

#[isolated_test]
fn exec_runs_the_closures_and_replaces_the_process() {
    // The program prints the text that the waiting test looks for.
    panic!("{}", with_pipewright::exec_again());
}

#[isolated_test]
fn exec_of_std_does_the_same() {
    panic!("{}", with_std::exec_again());
}

// Alone: a test that panics in another thread has the lock of the hook, and the child would wait for it for ever.
#[isolated_test]
fn a_panic_in_a_closure_aborts_the_child_alone() {
    use pipewright::process::unix::{CommandExt as _, ExitStatusExt as _};
    let mut command = pipewright::process::Command::new("true");
    command.stderr(pipewright::process::Stdio::null());
    // SAFETY: the test observes a panic; no other thread of this process holds a lock that the panic takes.
    unsafe {
        command.pre_exec(|| {
            std::panic::set_hook(Box::new(|_| ()));
            panic!("in the child")
        });
    }
    assert_eq!(command.status().unwrap().signal(), Some(libc::SIGABRT));
}

#[watched_test]
fn closures_go_with_handles_that_are_given_new_numbers() {
    use pipewright::process::unix::CommandExt as _;
    let (reader, _writer) = pipewright::pipe(pipewright::PipeOptions::default()).unwrap();
    for number in 3..20 {
        let mut command = pipewright::Command::new("sh");
        command.args(["-c", &format!("test -p /dev/fd/{number} && echo yes")]);
        command.inherit_fd_as(reader.try_clone().unwrap(), number);
        // SAFETY: it does nothing.
        unsafe { command.pre_exec(|| Ok(())) };
        assert_eq!(command.read().unwrap(), "yes", "{number}");
    }
}

#[watched_test]
fn a_tree_with_closures_needs_no_supervisor_or_is_refused() {
    use pipewright::process::unix::CommandExt as _;
    let mut command = pipewright::Command::new("true");
    // SAFETY: it does nothing.
    unsafe { command.pre_exec(|| Ok(())) };
    let capture = command.contain(pipewright::Contain::Tree).capture().unwrap();
    assert_ne!(capture.containment, pipewright::Containment::Supervisor);
    let error = command.kill_on_parent_exit(pipewright::Scope::Tree).status().unwrap_err();
    assert!(*error.kind() == io::ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("pre_exec"), "{error}");
}

#[watched_test]
fn closures_are_handed_over_to_std() {
    use pipewright::process::unix::CommandExt as _;
    let mut command = pipewright::process::Command::new("true");
    // SAFETY: it does nothing.
    unsafe { command.pre_exec(|| Err(io::Error::from_raw_os_error(libc::EDOM))) };
    let mut theirs = std::process::Command::from(command);
    assert_eq!(theirs.spawn().unwrap_err().raw_os_error(), Some(libc::EDOM));
}
