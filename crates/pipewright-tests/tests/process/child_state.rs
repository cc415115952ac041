//! The state that a child starts in, and starts that other threads, forks, dumps and the size of the parent could
//! disturb.

use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::thread;
use std::time::Duration;

use pipewright::{AsyncRunner, Command, Contain, Resource, Runner, Scope, Stdio, TreeSlot};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::kernel::hold;
use pipewright_tests::skip::{Need, is_forced_off, is_root, skipped};
use pipewright_tests::watchdog::{self, in_a_fork};
use pipewright_tests::{alive, count, pace};

use crate::tree_slot::has_no_slots;
use crate::{cannot_supervise, puppet};

/// Returns a line of the child's own `/proc/self/status`, as a mask.
fn child_mask(field: &str) -> u64 {
    // Not the puppet: the start of a Rust program changes some of these itself, and grep catches
    // SIGSEGV.
    let status = Command::new("cat").arg("/proc/self/status").read().unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

extern "C" fn handler(_: i32) {}

#[isolated_test]
fn mask_sigpipe_and_handlers_are_the_default() {
    // SAFETY: the handler does nothing, and this process runs nothing but this test.
    unsafe {
        libc::signal(libc::SIGUSR1, handler as *const () as libc::sighandler_t);
        libc::signal(libc::SIGTERM, handler as *const () as libc::sighandler_t);
        libc::signal(libc::SIGHUP, libc::SIG_IGN);
        let mut blocked = std::mem::zeroed();
        libc::sigemptyset(&raw mut blocked);
        libc::sigaddset(&raw mut blocked, libc::SIGUSR2);
        libc::sigaddset(&raw mut blocked, libc::SIGINT);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, std::ptr::null_mut());
    }
    assert_eq!(child_mask("SigBlk"), 0, "blocked");
    assert_eq!(child_mask("SigCgt"), 0, "caught");
    let ignored = child_mask("SigIgn");
    assert_eq!(ignored & bit(libc::SIGPIPE), 0, "SIGPIPE, which Rust ignores");
    assert_ne!(ignored & bit(libc::SIGHUP), 0, "nohup works through us");
}

#[watched_test]
fn our_own_signal_mask_is_unchanged() {
    let mask = || {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        status.lines().find(|line| line.starts_with("SigBlk")).unwrap().to_owned()
    };
    let before = mask();
    Command::new("true").status().unwrap();
    Command::new("no-such-program").status().unwrap_err();
    assert_eq!(mask(), before);
}

#[watched_test]
fn a_child_that_writes_to_a_closed_pipe_dies_of_sigpipe() {
    let mut child = Command::new("yes").stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGPIPE));
}

/// Runs `body` with 0, 1 and 2 closed, and puts them back for the test harness.
fn with_closed_stdio(body: impl FnOnce() -> Result<(), String>) {
    let save = |fd| {
        // SAFETY: this process runs nothing but this test, and all three are open again afterwards.
        unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 100) }
    };
    let saved: Vec<i32> = (0..3).map(save).collect();
    let before = count::handles_at_rest();
    for fd in 0..3 {
        // SAFETY: as above.
        unsafe { libc::close(fd) };
    }
    let result = body();
    // One of our threads may have a handle of these numbers for a moment longer.
    watchdog::until("every handle is closed", || count::handles() <= before - 3);
    for (fd, saved) in saved.into_iter().enumerate() {
        // SAFETY: as above.
        unsafe { libc::dup2(saved, fd as i32) };
    }
    assert_eq!(result, Ok(()));
}

#[isolated_test]
fn a_parent_with_closed_stdio_works() {
    with_closed_stdio(|| {
        let capture = puppet(["cat", "err=oops"])
            .stdin(Stdio::bytes("through"))
            .capture()
            .map_err(|error| error.to_string())?;
        let output = (capture.stdout.as_str(), capture.stderr.as_str());
        if output != ("through", "oops") {
            return Err(format!("{output:?}"));
        }
        let status = puppet(["exit=7"]).status().map_err(|error| error.to_string())?;
        if status.code() != Some(7) {
            return Err(status.to_string());
        }
        Ok(())
    });
}

#[isolated_test]
fn handles_numbered_0_to_2_can_be_given_in_any_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("in"), "input").unwrap();
    with_closed_stdio(|| {
        // Opened in this order they get 0, 1 and 2, and each is given another place.
        let out = std::fs::File::create(path("out")).unwrap();
        let err = std::fs::File::create(path("err")).unwrap();
        let input = std::fs::File::open(path("in")).unwrap();
        let numbers = [out.as_raw_fd(), err.as_raw_fd(), input.as_raw_fd()];
        if numbers != [0, 1, 2] {
            return Err(format!("{numbers:?}"));
        }
        let mut command = puppet(["cat", "err=oops"]);
        command.stdin(input).stdout(out).stderr(err);
        let status = command.status().map_err(|error| error.to_string())?;
        // Closes 0 to 2 again before they are put back.
        drop(command);
        if status.success() { Ok(()) } else { Err(status.to_string()) }
    });
    assert_eq!(std::fs::read_to_string(path("out")).unwrap(), "input");
    assert_eq!(std::fs::read_to_string(path("err")).unwrap(), "oops");
}

#[watched_test]
fn inherited_handles_can_swap_numbers() {
    let dir = tempfile::tempdir().unwrap();
    // Two files at numbers of our choice, each to appear under the other's number.
    let place = |name: &str, number: i32| {
        let mut file = std::fs::File::create_new(dir.path().join(name)).unwrap();
        file.write_all(name.as_bytes()).unwrap();
        // SAFETY: a number that was free, and is ours from here on.
        let fd = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, number) };
        // SAFETY: just made.
        unsafe { OwnedFd::from_raw_fd(fd) }
    };
    let (a, b) = (place("a", 200), place("b", 300));
    let (at_a, at_b) = (a.as_raw_fd(), b.as_raw_fd());
    let mut command = Command::new("sh");
    command.args(["-c", &format!("readlink /proc/self/fd/{at_a} /proc/self/fd/{at_b}")]);
    // The shell's child has them too, because they are not close-on-exec there.
    let text = command.inherit_fd_as(a, at_b).inherit_fd_as(b, at_a).read().unwrap();
    let names: Vec<&str> = text.lines().map(|line| &line[line.len() - 1..]).collect();
    assert_eq!(names, ["b", "a"]);
}

const CASE: &str = "PIPEWRIGHT_DUMPS_CASE";

extern "C" fn nothing(_: i32) {}

/// Runs this test again under strace, which sends a signal to each process at its first call of that name. The process
/// of the test handles it. Returns the name of the case in the process that does it.
fn inside(call: &str, signal: &str, case: &str) -> Option<String> {
    if let Ok(case) = std::env::var(CASE) {
        for signal in [libc::SIGQUIT, libc::SIGABRT] {
            // SAFETY: a function that does nothing.
            unsafe { libc::signal(signal, nothing as extern "C" fn(i32) as usize) };
        }
        let most = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: a live struct. Ignored: then no core is dumped anyway.
        unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const most) };
        return Some(case);
    }
    let mut command = std::process::Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e"]);
    command.arg(format!("inject={call}:signal={signal}:when=1"));
    // Until the test handles it.
    command.args(["sh", "-c", "trap '' QUIT ABRT; exec \"$@\"", "sh"]);
    command.arg(std::env::current_exe().unwrap()).arg(watchdog::current_test());
    command.args(["--exact", "--nocapture", "--test-threads=1"]);
    let output = command.env(CASE, case).output().unwrap();
    assert!(output.status.success(), "{call}, {signal}, {case}: {output:?}");
    None
}

fn cannot_test() -> bool {
    if Command::new("strace").arg("-V").output().is_err() {
        skipped(Need::Program("strace"), "it makes calls fail");
        return true;
    }
    if is_forced_off("vfork") {
        skipped(Need::Vfork, "children share no memory");
        return true;
    }
    false
}

#[isolated_test]
fn a_signal_that_dumps_core_during_a_start_dumps_nothing_of_the_parent() {
    if std::env::var_os(CASE).is_none() && cannot_test() {
        return;
    }
    // Each attempt finds the signal pending; or it arrives after the last look, when signals are unblocked.
    for (call, signal) in [
        ("rt_sigpending", "SIGQUIT"),
        ("rt_sigpending", "SIGABRT"),
        ("rt_sigpending", "SIGBUS"),
        ("rt_sigprocmask", "SIGQUIT"),
        ("rt_sigprocmask", "SIGABRT"),
    ] {
        if inside(call, signal, "plain").is_some() {
            let ended = puppet(["exit=0"]).status().unwrap();
            assert_eq!(ended.signal(), Some(libc::SIGKILL), "{ended}");
            return;
        }
    }
}

#[isolated_test]
fn a_signal_that_dumps_core_during_a_start_in_a_slot_leaves_the_supervisor_alone() {
    if std::env::var_os(CASE).is_none() && (cannot_test() || has_no_slots()) {
        return;
    }
    if inside("rt_sigpending", "SIGQUIT", "slot").is_some() {
        let slot = TreeSlot::new().unwrap();
        for _ in 0..2 {
            let ended = puppet(["exit=0"]).contain_in(&slot).status().unwrap();
            assert_eq!(ended.signal(), Some(libc::SIGKILL), "{ended}");
        }
    }
}

/// Returns the status of a child that ends with this process, started from a thread that has run `before`.
fn status_seen_by_a_child(before: fn()) -> String {
    let start = move || {
        before();
        let mut command = Command::new("cat");
        command.arg("/proc/self/status").kill_on_parent_exit(Scope::Child).read().unwrap()
    };
    thread::spawn(start).join().unwrap()
}

fn line<'a>(status: &'a str, name: &str) -> &'a str {
    status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim()
}

fn give_up_new_privileges() {
    // SAFETY: numbers; it is of this thread alone.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
}

fn give_up_a_capability() {
    const CAP_NET_RAW: libc::c_ulong = 13;
    // SAFETY: as above.
    assert_eq!(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, CAP_NET_RAW, 0, 0, 0) }, 0);
}

fn install_seccomp_filter() {
    // It holds nothing that a child here calls.
    std::mem::forget(hold(libc::SYS_acct));
}

#[isolated_test]
fn a_child_that_ends_with_us_has_the_privileges_of_its_thread() {
    let plain = status_seen_by_a_child(|| ());
    let privileges = ["NoNewPrivs:", "CapBnd:", "Seccomp:", "Seccomp_filters:"];
    let of = |status: &str| privileges.map(|name| line(status, name).to_owned());
    let given_up = status_seen_by_a_child(give_up_new_privileges);
    assert_eq!(line(&given_up, "NoNewPrivs:"), "1");
    let filtered = status_seen_by_a_child(install_seccomp_filter);
    assert_eq!(line(&filtered, "Seccomp:"), "2");
    if is_root() {
        let without = status_seen_by_a_child(give_up_a_capability);
        assert_ne!(line(&without, "CapBnd:"), line(&plain, "CapBnd:"));
    }
    // Other threads are unchanged.
    assert_eq!(of(&status_seen_by_a_child(|| ())), of(&plain));
}

/// Returns a command whose start hangs in the change of its directory until it is released.
fn hanging(change: fn(&mut Command) -> &mut Command) -> Command {
    let mut command = puppet(["exit=0"]);
    change(command.current_dir("/"));
    command
}

#[track_caller]
fn check_a_hanging_start_delays_no_other(change: fn(&mut Command) -> &mut Command) {
    let Some(held) = hold(libc::SYS_chdir) else {
        return skipped(Need::SeccompNotify, "no call can be held here");
    };
    thread::scope(|scope| {
        let hangs = scope.spawn(|| hanging(change).status().unwrap().success());
        let call = held.wait_for_one();
        let others: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| change(&mut puppet(["exit=0"])).status().unwrap().success()))
            .collect();
        for other in others {
            assert!(other.join().unwrap());
        }
        assert!(!hangs.is_finished());
        held.continue_call(call);
        assert!(hangs.join().unwrap());
    });
}

#[isolated_test]
fn a_hanging_start_delays_no_child_that_ends_with_us() {
    check_a_hanging_start_delays_no_other(|command| command.kill_on_parent_exit(Scope::Child));
}

#[isolated_test]
fn a_hanging_start_delays_no_child_of_another_user() {
    if !is_root() {
        return skipped(Need::Root, "changing the user needs root");
    }
    // SAFETY: numbers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1) }, 0);
    check_a_hanging_start_delays_no_other(|command| command.uid(65534));
    // SAFETY: asks only.
    assert_eq!(unsafe { libc::prctl(libc::PR_GET_DUMPABLE) }, 1);
}

const PAGE_BYTES: usize = 4096;

/// Returns the minor page faults of this process so far.
fn faults() -> i64 {
    // SAFETY: all zeroes is an rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a live rusage.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) }, 0);
    usage.ru_minflt
}

fn touch(memory: &mut [u8]) {
    for page in memory.chunks_mut(PAGE_BYTES) {
        page[0] = page[0].wrapping_add(1);
    }
}

#[isolated_test]
fn a_start_from_a_large_parent_copies_nothing() {
    if is_forced_off("vfork") {
        return skipped(Need::Vfork, "this build forks");
    }
    // Small pages: after a fork, a large one would fault once for 512 of them.
    // SAFETY: numbers.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    // More would only take longer: each page faults after a fork, or none does.
    let mut memory = vec![1_u8; pace::rounds(4, 1) * (256 << 20)];
    touch(&mut memory);
    let file = || std::fs::File::open("/dev/null").unwrap();
    type Change = fn(&mut Command) -> &mut Command;
    let mut options: Vec<(&str, Change)> = vec![
        ("nothing", |command| command),
        ("own_group", |command| command.own_group()),
        ("own_session", |command| command.own_session()),
        ("env and bare name", |command| command.env("PATH", "/bin:/usr/bin")),
        ("current_dir", |command| command.current_dir("/")),
        ("kill_on_parent_exit", |command| command.kill_on_parent_exit(pipewright::Scope::Child)),
        ("contain", |command| command.contain(pipewright::Contain::Tree)),
        ("rlimit", |command| command.rlimit(Resource::CoreDump, Some(0), Some(0))),
        ("umask and nice", |command| command.umask(0o77).nice(1)),
        ("inherit_all", |command| command.inherit_all()),
    ];
    if !cannot_supervise() {
        options.push(("kill_on_parent_exit of the tree", |command| {
            command.kill_on_parent_exit(pipewright::Scope::Tree)
        }));
    }
    if is_root() {
        options.push(("uid, gid, groups", |command| command.uid(65534).gid(65534).groups(&[])));
        options.push(("chroot", |command| command.chroot("/")));
    } else {
        skipped(Need::Root, "uid and chroot need root");
    }
    for (name, change) in options {
        let mut command = Command::new("true");
        change(&mut command).inherit(file()).inherit_fd_as(file(), 77);
        let before = faults();
        assert!(command.status().unwrap().success(), "{name}");
        touch(&mut memory);
        let new = faults() - before;
        // A fork would fault once for each of at least 65,536 pages.
        assert!(new < 2_000, "{name}: {new} page faults");
    }
}

const MARK: &str = "PIPEWRIGHT_FORKS_TEST";

/// Returns a command that runs until it is killed, with a process that leaves its group.
fn lasting() -> Command {
    let mut command = puppet(["daemon=600", "out=x", "wait=600"]);
    command.env(MARK, alive::mark("lasting")).stdin(Stdio::null()).stderr(Stdio::null());
    command.stdout(Stdio::null());
    command
}

#[isolated_test]
fn a_fork_that_drops_its_copies_ends_no_tree_of_its_parent() {
    let mut children = vec![
        ("kill on drop", lasting().kill_on_drop().spawn().unwrap()),
        ("group", lasting().contain(Contain::Group).kill_on_drop().spawn().unwrap()),
        ("tree", lasting().contain(Contain::Tree).spawn().unwrap()),
    ];
    if !cannot_supervise() {
        let mut command = lasting();
        command.kill_on_parent_exit(Scope::Tree);
        children.push(("ends with us", command.spawn().unwrap()));
    }
    let slot = (!has_no_slots()).then(|| TreeSlot::new().unwrap());
    if let Some(slot) = &slot {
        children.push(("slot", lasting().contain_in(slot).spawn().unwrap()));
    }
    let mut lines_of = lasting();
    let lines = lines_of.stdout(Stdio::piped()).contain(Contain::Tree).lines().unwrap();
    let mut events_of = lasting();
    let mut events = events_of.stdout(Stdio::piped()).contain(Contain::Tree).events().unwrap();
    events.next().unwrap().unwrap();
    let mut runner = Runner::new(2);
    runner.push("runner", lasting().contain(Contain::Tree).owned());
    assert!(matches!(runner.next_within(Duration::from_millis(1)), pipewright::Next::Pending));
    // Two that a task runs: what it does at the drop of its future is not for a fork.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut tasks = AsyncRunner::new(2);
    tasks.push("task", lasting().contain(Contain::Tree).owned());
    tasks.push("plain task", lasting());
    let polled = async { tokio::time::timeout(Duration::from_millis(1), tasks.next()).await };
    assert!(runtime.block_on(polled).is_err());
    let count = 2 * (children.len() + 5);
    watchdog::until("all have started", || alive::marked(MARK, "lasting").len() == count);
    let mut mine = Some((children, lines, events, runner, tasks, slot));
    assert!(in_a_fork(|| {
        let Some((children, mut lines, events, mut runner, tasks, slot)) = mine.take() else {
            return;
        };
        // A wait fails at once, and ends nothing either.
        for (_, child) in &children {
            let _ = child.try_wait();
            assert!(child.wait().is_err());
            assert!(child.try_wait_for(Duration::from_millis(1)).is_err());
            assert!(child.stop().is_err());
        }
        assert!(lines.next().is_none_or(|line| line.is_err()));
        assert!(runner.next().is_none_or(|(_, result)| result.is_err()));
        drop((children, lines, events, runner, tasks, slot));
    }));
    assert_eq!(alive::marked(MARK, "lasting").len(), count, "the fork has ended some");
    let (children, lines, events, runner, tasks, slot) = mine.take().unwrap();
    for (name, child) in &children {
        assert_eq!(child.try_wait().unwrap(), None, "{name}");
    }
    drop((lines, events, runner, tasks));
    for (name, child) in children {
        child.kill().unwrap();
        child.wait().unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    drop(slot);
    // What left its group without a tree.
    alive::marked(MARK, "lasting").into_iter().for_each(alive::kill);
}

#[isolated_test]
fn a_fork_starts_commands_while_another_thread_was_starting_one() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let done = AtomicBool::new(false);
    let start = |how: usize| {
        let mut command = puppet(["exit=0"]);
        match how % 3 {
            0 => {}
            1 => _ = command.contain(Contain::Tree),
            _ => _ = command.kill_on_parent_exit(Scope::Child),
        }
        assert!(command.status().unwrap().success());
    };
    std::thread::scope(|scope| {
        for first in 0..2 {
            let done = &done;
            scope.spawn(move || {
                let mut how = first;
                while !done.load(Ordering::Relaxed) {
                    start(how);
                    how += 1;
                }
            });
        }
        for round in 0..pace::rounds(200, 30) {
            assert!(in_a_fork(|| (0..3).for_each(start)), "fork {round}");
        }
        done.store(true, Ordering::Relaxed);
    });
}
