//! Waiting for a child, from one thread and from several.

#[cfg(unix)]
use std::io::Write as _;
use std::time::{Duration, Instant};

use pipewright::{Command, Outcome, Signal, Stdio};
use pipewright_test_macros::{isolated_test, watched_test};

use super::{ended_by, puppet};

#[watched_test]
fn one_thread_waits_while_another_kills() {
    let child = puppet(["wait=600"]).spawn().unwrap();
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..4).map(|_| scope.spawn(|| child.wait().unwrap())).collect();
        assert_eq!(child.try_wait().unwrap(), None);
        assert!(child.signal(Signal::KILL).unwrap());
        for waiter in waiters {
            ended_by(waiter.join().unwrap(), Signal::KILL);
        }
    });
    ended_by(child.wait().unwrap(), Signal::KILL);
    ended_by(child.try_wait().unwrap().unwrap(), Signal::KILL);
}

#[cfg(unix)]
#[watched_test]
fn every_kind_of_exit_is_reported() {
    for code in [0, 1, 42, 255] {
        let capture = puppet([format!("exit={code}")]).capture().unwrap();
        assert_eq!((capture.outcome, capture.status.code()), (Outcome::Exited, Some(code)));
        assert_eq!(capture.success(), code == 0);
    }
    for name in ["KILL", "TERM", "SEGV", "ABRT"] {
        let mut command = puppet([format!("raise={name}")]);
        let capture =
            command.rlimit(pipewright::Resource::CoreDump, Some(0), Some(0)).capture().unwrap();
        let signal: Signal = name.parse().unwrap();
        assert_eq!(capture.outcome, Outcome::Signaled);
        assert_eq!(capture.status.terminating_signal(), Some(signal));
        assert_eq!(capture.status.code(), None);
        assert!(capture.status.to_string().contains(&signal.to_string()), "{}", capture.status);
    }
}

#[cfg(unix)]
#[watched_test]
fn usage_is_reported() {
    let capture = Command::new("sh")
        .args(["-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"])
        .capture()
        .unwrap();
    let usage = capture.usage.unwrap();
    assert!(usage.user + usage.system > Duration::ZERO);
    assert!(capture.elapsed >= usage.user);
}

#[cfg(unix)]
#[isolated_test]
fn peak_memory_is_reported_if_above_our_own() {
    let script = "x=$(head -c 100000000 /dev/zero | tr '\\0' x); echo ${#x}";
    let capture = Command::new("sh").args(["-c", script]).capture().unwrap();
    let peak = capture.usage.unwrap().peak_rss_bytes;
    assert!(peak.is_some_and(|bytes| bytes > 90_000_000), "{peak:?}");
}

#[cfg(unix)]
#[watched_test]
fn the_memory_of_the_parent_is_not_reported_as_the_childs() {
    let memory = vec![1_u8; 100 << 20];
    let capture = Command::new("true").capture().unwrap();
    let peak = capture.usage.unwrap().peak_rss_bytes;
    assert_eq!(peak, None, "true(1) uses less than this process, so its peak is unknown");
    assert_eq!(memory[memory.len() / 2], 1);
}

#[watched_test]
fn elapsed_is_at_least_what_the_child_took() {
    let start = Instant::now();
    let capture = puppet(["wait=0.2"]).capture().unwrap();
    assert!(capture.elapsed >= Duration::from_millis(200));
    assert!(capture.elapsed <= start.elapsed());
}

#[cfg(unix)]
#[watched_test]
fn a_signal_reaches_only_the_child() {
    let mut command = puppet(["spawn=wait=0.3;out=grandchild", "out=child ", "wait=600"]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut text = Vec::with_capacity(6);
    while text.len() < 6 {
        child.stdout.as_ref().unwrap().read_spare(&mut text).unwrap();
    }
    assert!(child.signal(Signal::TERM).unwrap());
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut rest).unwrap();
    assert_eq!(rest, "grandchild");
    ended_by(child.wait().unwrap(), Signal::TERM);
}

#[cfg(unix)]
#[watched_test]
fn exec_replaces_the_process() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["waiting::execs_another_program", "--exact", "--nocapture", "--ignored"]);
    let text = command.env("PIPEWRIGHT_EXEC", "1").read().unwrap();
    assert!(text.ends_with("another program"), "{text}");
    let error = Command::new("/no/such/program").exec();
    assert!(error.to_string().contains("no such file"), "{error}");
}

#[cfg(unix)]
#[isolated_test]
fn a_grandchild_can_write_after_the_parents_exec() {
    let error = Command::new("/no/such/program").exec();
    assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    let (reader, mut writer) = pipewright::pipe(pipewright::PipeOptions::default()).unwrap();
    drop(reader);
    let error = writer.write(b"x").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
}

#[cfg(unix)]
#[watched_test]
fn exec_refuses_options_that_need_a_parent() {
    // Uses a program that does not exist, because an existing one would replace this process.
    let words = |change: fn(&mut Command) -> &mut Command| {
        let error = change(&mut Command::new("/no/such/program")).exec();
        assert_eq!(error.kind(), &pipewright::ErrorKind::InvalidInput);
        error.to_string()
    };
    let said = words(|command| command.stdin(Stdio::bytes("input")));
    assert!(
        said.ends_with(
            "its stdin would pass through this process: use a file, a handle, null or inherit"
        ),
        "{said}"
    );
    let said = words(|command| command.stdout(Stdio::tee()));
    assert!(said.ends_with(
        "its stdout would pass through this process: use a file, a handle, null or inherit"
    ));
    let said = words(|command| command.timeout(Duration::from_secs(1)));
    assert!(
        said.ends_with(
            "a timeout or cancel token needs a call that waits: use `spawn` or `status`"
        ),
        "{said}"
    );
}

/// Runs in the process that the test above starts.
#[cfg(unix)]
#[watched_test]
#[ignore = "replaces the test program: only for exec_replaces_the_process"]
fn execs_another_program() {
    assert!(std::env::var_os("PIPEWRIGHT_EXEC").is_some());
    panic!("{}", Command::new("printf").arg("another program").exec());
}
