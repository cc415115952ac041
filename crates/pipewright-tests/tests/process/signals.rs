//! Signals that cancel tokens, and those that a program receives one by one.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use pipewright::{CancelToken, CaughtSignals, Child, Command, Outcome, Signal, Stdio};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::watchdog;

use crate::async_pipes::poll_once;
use crate::async_verbs::one_thread;
use crate::{ended_by, flood, puppet, short};

/// Sends a signal to this process, for any thread.
fn send(signal: Signal) {
    // SAFETY: numbers.
    assert_eq!(unsafe { libc::kill(libc::getpid(), signal.number()) }, 0);
}

/// Returns true if that set of signals in `/proc/self/status` has the signal.
#[cfg(target_os = "linux")]
fn has(field: &str, signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    let set = u64::from_str_radix(line.trim_start_matches(':').trim(), 16).unwrap();
    set & (1 << (signal.number() - 1)) != 0
}

fn is_handled(signal: Signal) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: only queries, into a live struct.
    let asked = unsafe { libc::sigaction(signal.number(), std::ptr::null(), action.as_mut_ptr()) };
    assert_eq!(asked, 0);
    // SAFETY: initialized by the call.
    let handler = unsafe { action.assume_init() }.sa_sigaction;
    handler != libc::SIG_DFL && handler != libc::SIG_IGN
}

/// Starts a puppet that handles signals, and returns the lines that it prints for them.
fn guarded(act: &str) -> (Child, impl Iterator<Item = String>) {
    let mut child = puppet([act]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "guarded");
    (child, lines)
}

/// Sends the signal until it has its effect: signals that arrive together count once.
fn send_until(signal: Signal, child: &Child, mut is_done: impl FnMut() -> bool) {
    watchdog::until("the signal has its effect", || {
        child.signal(signal).unwrap();
        is_done()
    });
}

#[isolated_test]
fn the_first_signal_cancels_the_token_and_is_reported() {
    let token = CancelToken::new();
    let guard = token.cancel_on(&[Signal::INT, Signal::TERM]).unwrap();
    assert_eq!((guard.received(), guard.count()), (None, 0));
    let run = {
        let token = token.clone();
        thread::spawn(move || puppet(["wait=600"]).own_group().cancel(&token).capture())
    };
    watchdog::until("the run waits for the token", || token.is_waited_for());
    send(Signal::TERM);
    let capture = run.join().unwrap().unwrap();
    assert_eq!(capture.outcome, Outcome::Cancelled);
    ended_by(capture.status, Signal::TERM);
    assert_eq!((guard.received(), guard.count()), (Some(Signal::TERM), 1));
    assert!(token.is_cancelled());
}

#[isolated_test]
fn a_signal_cancels_a_run_of_a_task() {
    let token = CancelToken::new();
    let _guard = token.cancel_on(&[Signal::INT]).unwrap();
    one_thread().block_on(async {
        let mut command = puppet(["wait=600"]);
        let capture = command.own_group().cancel(&token).capture_async();
        let sender = thread::spawn({
            let token = token.clone();
            move || {
                watchdog::until("the run waits for the token", || token.is_waited_for());
                send(Signal::INT);
            }
        });
        assert_eq!(capture.await.unwrap().outcome, Outcome::Cancelled);
        sender.join().unwrap();
    });
}

#[watched_test]
fn the_signal_after_the_last_token_ends_the_process() {
    let (child, mut lines) = guarded("guard=INT+TERM");
    child.signal(Signal::INT).unwrap();
    assert_eq!(lines.next().unwrap(), "cancelled Some(SIGINT)");
    send_until(Signal::TERM, &child, || child.try_wait().unwrap().is_some());
    ended_by(child.wait().unwrap(), Signal::TERM);
}

#[watched_test]
fn each_signal_cancels_the_next_token() {
    let (child, mut lines) = guarded("guard=INT,3");
    for _ in 0..3 {
        child.signal(Signal::INT).unwrap();
        assert_eq!(lines.next().unwrap(), "cancelled Some(SIGINT)");
        // Sent once: what a slow child has not told yet would cancel one more. Those within a tenth of a second of the
        // last one count as that one.
        let told = Instant::now();
        watchdog::until("the next one counts", || told.elapsed() > Duration::from_millis(150));
    }
    child.signal(Signal::INT).unwrap();
    ended_by(child.wait().unwrap(), Signal::INT);
    assert!(lines.next().is_none());
}

#[watched_test]
fn after_the_guard_a_raise_ends_the_process_by_the_signal() {
    let (child, mut lines) = guarded("guard=INT,1,raise");
    child.signal(Signal::INT).unwrap();
    assert_eq!(lines.next().unwrap(), "cancelled Some(SIGINT)");
    ended_by(child.wait().unwrap(), Signal::INT);
}

#[isolated_test]
fn a_dropped_guard_restores_the_previous_handler() {
    let (first, second) = (CancelToken::new(), CancelToken::new());
    assert!(!is_handled(Signal::INT) && !is_handled(Signal::TERM));
    let one = first.cancel_on(&[Signal::INT, Signal::TERM]).unwrap();
    let other = second.cancel_on(&[Signal::INT]).unwrap();
    drop(one);
    assert!(is_handled(Signal::INT) && !is_handled(Signal::TERM));
    send(Signal::INT);
    assert!(second.wait_for(Duration::from_secs(60)) && !first.is_cancelled());
    drop(other);
    assert!(!is_handled(Signal::INT));
}

/// A handler of other code, which passes a signal on to the previous one, as signal-hook does.
static BEFORE: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static PASSED_ON: AtomicUsize = AtomicUsize::new(0);

extern "C" fn pass_on(number: libc::c_int) {
    PASSED_ON.fetch_add(1, Ordering::SeqCst);
    let before = BEFORE.load(Ordering::SeqCst);
    // SAFETY: the handler that was in place of this one: a guard's.
    let before: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(before) };
    before(number);
}

#[isolated_test]
fn a_later_handler_stays_and_can_chain_to_ours() {
    let token = CancelToken::new();
    let guard = token.cancel_on(&[Signal::USR1]).unwrap();
    let theirs = pass_on as *const () as libc::sighandler_t;
    // SAFETY: a handler that only counts and calls.
    BEFORE.store(unsafe { libc::signal(libc::SIGUSR1, theirs) }, Ordering::SeqCst);
    let send_here = sender();
    send_here(Signal::USR1);
    assert!(token.is_cancelled());
    drop(guard);
    // The signal has no token: it neither ends this process nor is raised forever.
    send_here(Signal::USR1);
    assert_eq!(PASSED_ON.load(Ordering::SeqCst), 2);
    assert!(is_handled(Signal::USR1));
}

#[isolated_test]
fn every_guard_of_a_signal_sees_it() {
    let (first, second) = (CancelToken::new(), CancelToken::new());
    let one = first.cancel_on(&[Signal::INT, Signal::HUP]).unwrap();
    let other = second.cancel_on(&[Signal::HUP]).unwrap();
    send(Signal::HUP);
    // Another thread may be in the handler, between the two.
    let minute = Duration::from_secs(60);
    assert!(first.wait_for(minute) && second.wait_for(minute));
    assert_eq!((one.received(), other.received()), (Some(Signal::HUP), Some(Signal::HUP)));

    // One guard has no token left; the other has one.
    let (third, send_here) = (CancelToken::new(), sender());
    let _other = other.then(&third);
    watchdog::until("the third is cancelled", || {
        send_here(Signal::HUP);
        third.is_cancelled()
    });
}

#[isolated_test]
fn signals_that_come_together_count_once() {
    let send_here = sender();
    // If this thread was preempted for long between the two, they did not arrive together.
    loop {
        let (drain, stop) = (CancelToken::new(), CancelToken::new());
        let guard = drain.cancel_on(&[Signal::TERM]).unwrap().then(&stop);
        let start = Instant::now();
        // Handled before each call returns.
        send_here(Signal::TERM);
        send_here(Signal::TERM);
        if start.elapsed() < Duration::from_millis(50) {
            assert!(drain.is_cancelled() && !stop.is_cancelled());
            assert_eq!(guard.count(), 1);
            return;
        }
    }
}

#[cfg(target_os = "linux")]
#[isolated_test]
fn an_ignored_signal_stays_ignored() {
    // SAFETY: SIG_IGN runs no code of this program.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
    let token = CancelToken::new();
    let guard = token.cancel_on(&[Signal::INT, Signal::TERM]).unwrap();
    assert!(!is_handled(Signal::INT) && is_handled(Signal::TERM));
    send(Signal::INT);
    drop(guard);
    assert!(has("SigIgn", Signal::INT) && !token.is_cancelled());
}

#[cfg(target_os = "linux")]
#[isolated_test]
fn an_ignored_signal_has_its_default_in_a_child_that_asks_for_it() {
    let signal = Signal::from_number(libc::SIGXFSZ).unwrap();
    // SAFETY: SIG_IGN runs no code of this program.
    unsafe { libc::signal(signal.number(), libc::SIG_IGN) };
    let ignored = |command: &mut Command| {
        let set = command.read().unwrap();
        let digits = set.rsplit([':', '=', '\t', ' ']).next().unwrap();
        u64::from_str_radix(digits, 16).unwrap() & (1 << (signal.number() - 1)) != 0
    };
    assert!(ignored(&mut puppet(["status=SigIgn"])));
    assert!(!ignored(puppet(["status=SigIgn"]).default_signal(signal)));
    assert!(has("SigIgn", signal), "this process is unchanged");
}

#[isolated_test]
fn a_signal_that_cannot_be_handled_is_refused_and_changes_nothing() {
    let token = CancelToken::new();
    for signal in [Signal::KILL, Signal::STOP] {
        let error = token.cancel_on(&[Signal::INT, signal]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(!is_handled(Signal::INT));
    }
}

#[isolated_test]
fn children_have_the_default_effect_while_a_guard_lives() {
    let plain = ["status=SigCgt", "status=SigIgn", "status=SigBlk"];
    let before = puppet(plain).read().unwrap();
    let token = CancelToken::new();
    let _guard = token.cancel_on(&[Signal::INT, Signal::TERM]).unwrap();
    assert_eq!(puppet(plain).read().unwrap(), before);
    let child = puppet(["wait=600"]).own_group().spawn().unwrap();
    child.signal(Signal::INT).unwrap();
    ended_by(child.wait().unwrap(), Signal::INT);
    assert!(!token.is_cancelled());
}

#[isolated_test]
fn signals_do_not_interrupt_waits() {
    let spare: Vec<CancelToken> = (0..500).map(|_| CancelToken::new()).collect();
    let mut guard = CancelToken::new().cancel_on(&[Signal::USR1]).unwrap();
    for token in &spare {
        guard = guard.then(token);
    }
    let all = thread::spawn(|| {
        let input = flood(20_000_000);
        let mut command = puppet(["cat-both"]);
        let output = command.stdin(Stdio::bytes(input.clone())).output().unwrap();
        assert!(output.stdout == input && output.stderr == input);
        assert!(puppet(["wait=0.2"]).status().unwrap().success());
    });
    while !all.is_finished() && guard.count() < spare.len() {
        send(Signal::USR1);
        thread::park_timeout(Duration::from_micros(200));
    }
    all.join().unwrap();
    assert!(guard.count() > 0);
    // The last signal may be on its way to another thread.
    std::mem::forget(guard);
}

#[isolated_test]
fn guards_come_and_go_while_signals_arrive() {
    let spare: Vec<CancelToken> = (0..1000).map(|_| CancelToken::new()).collect();
    let mut guard = CancelToken::new().cancel_on(&[Signal::USR1, Signal::USR2]).unwrap();
    for token in &spare {
        guard = guard.then(token);
    }
    let changes = thread::spawn(|| {
        for _ in 0..2000 {
            let token = CancelToken::new();
            // Never the last guard: the default action of these ends the process.
            let guard = token.cancel_on(&[Signal::USR1]).unwrap().then(&token).then(&token);
            let more = token.cancel_on(&[Signal::USR2]).unwrap().then(&token).then(&token);
            drop((guard, more));
        }
    });
    while !changes.is_finished() && guard.count() < spare.len() {
        send(Signal::USR1);
        send(Signal::USR2);
    }
    changes.join().unwrap();
    // The last signals may be on their way to another thread.
    std::mem::forget(guard);
}

/// Sends signals to the calling thread: the harness has others, which block other ones.
pub(super) fn sender() -> impl Fn(Signal) + Send + Copy + 'static {
    // SAFETY: the number of the calling thread.
    let thread = unsafe { libc::pthread_self() } as usize;
    move |signal| {
        // A pointer with musl, which is not `Send`.
        let thread = thread as libc::pthread_t;
        // SAFETY: the test's own thread, which waits for this.
        assert_eq!(unsafe { libc::pthread_kill(thread, signal.number()) }, 0);
    }
}

/// Sends a signal to the process group, as the terminal sends Ctrl-C.
fn send_to_group(signal: Signal) {
    // SAFETY: numbers; 0 is the own group, which is that of the isolated test.
    assert_eq!(unsafe { libc::kill(0, signal.number()) }, 0);
}

/// Returns a command that creates the file `started`, and exits when the file `go` exists.
fn until_file_exists(dir: &Path) -> Command {
    let path = |name: &str| dir.join(name).display().to_string();
    puppet([format!("touch={}", path("started")), format!("wait-for-file={}", path("go"))])
}

#[isolated_test]
fn a_child_that_shares_the_group_gets_ctrl_c_itself_and_was_signaled_not_cancelled() {
    let dir = tempfile::tempdir().unwrap();
    let token = CancelToken::new();
    let guard = token.cancel_on(&[Signal::INT]).unwrap();
    let mut command = until_file_exists(dir.path());
    let run = thread::spawn(move || command.capture());
    watchdog::until("it has started", || dir.path().join("started").exists());
    send_to_group(Signal::INT);
    let capture = run.join().unwrap().unwrap();
    assert_eq!(capture.outcome, Outcome::Signaled);
    assert_eq!(capture.status.terminating_signal(), Some(Signal::INT));
    assert!(token.wait_for(Duration::from_secs(60)));
    assert_eq!(guard.received(), Some(Signal::INT));
}

#[isolated_test]
fn a_child_in_its_own_group_gets_no_terminal_signal() {
    let dir = tempfile::tempdir().unwrap();
    let token = CancelToken::new();
    let _guard = token.cancel_on(&[Signal::INT]).unwrap();
    let mut command = until_file_exists(dir.path()).own_group().owned();
    let run = thread::spawn(move || command.capture());
    watchdog::until("it has started", || dir.path().join("started").exists());
    send_to_group(Signal::INT);
    assert!(token.wait_for(Duration::from_secs(60)));
    // It drains.
    std::fs::write(dir.path().join("go"), b"").unwrap();
    assert!(run.join().unwrap().unwrap().success());
}

#[isolated_test]
fn caught_signals_are_waited_for_with_a_limit() {
    let caught = CaughtSignals::new(&[Signal::USR1, Signal::USR2]).unwrap();
    let start = Instant::now();
    assert_eq!(caught.wait_for(short()).unwrap(), None);
    assert!(start.elapsed() >= short());
    let send_here = sender();
    send_here(Signal::USR1);
    assert_eq!(caught.wait_for(Duration::ZERO).unwrap(), Some(Signal::USR1));
    assert_eq!(caught.wait_for(Duration::ZERO).unwrap(), None);
    let sends = thread::spawn(move || send_here(Signal::USR2));
    assert_eq!(caught.wait_for(Duration::MAX).unwrap(), Some(Signal::USR2));
    sends.join().unwrap();
}

/// `pipewright timeout` waits this way: with a handle that could not be had, the time was never over.
#[cfg(target_os = "linux")]
#[isolated_test]
fn a_wait_for_signals_with_a_limit_needs_no_handle() {
    let caught = CaughtSignals::new(&[Signal::USR1]).unwrap();
    let send_here = sender();
    pipewright_tests::kernel::refuse(&[libc::SYS_signalfd4, libc::SYS_ppoll], libc::EMFILE);
    assert_eq!(caught.wait_for(short()).unwrap(), None);
    let sends = thread::spawn(move || send_here(Signal::USR1));
    assert_eq!(caught.wait_for(Duration::from_secs(600)).unwrap(), Some(Signal::USR1));
    sends.join().unwrap();
}

#[isolated_test]
fn caught_signals_wake_a_task_and_a_dropped_wait_loses_none() {
    let caught = CaughtSignals::new(&[Signal::USR1, Signal::USR2]).unwrap();
    let send_here = sender();
    one_thread().block_on(async {
        let limit = Duration::from_millis(20);
        assert!(tokio::time::timeout(limit, caught.wait_async()).await.is_err());
        send_here(Signal::USR1);
        assert_eq!(caught.wait_async().await.unwrap(), Signal::USR1);
        let sends = thread::spawn(move || send_here(Signal::USR2));
        assert_eq!(caught.wait_async().await.unwrap(), Signal::USR2);
        sends.join().unwrap();
    });
    // Outside of a runtime.
    let Poll::Ready(result) = poll_once(caught.wait_async()) else { panic!("it waits") };
    assert_eq!(result.unwrap_err().kind(), std::io::ErrorKind::Unsupported);
}
