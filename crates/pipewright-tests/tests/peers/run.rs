//! Runs the cases, with their host and callers, and compares them with the promises that hold whatever their worker
//! did.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use pipewright::{CancelToken, Command};
use pipewright_ipc::{
    CallEvent, Channel, Error, ErrorKind, OnLine, Options, Pool, PoolOptions, Request, Schedule,
    SharedMemory,
};
use pipewright_test_macros::isolated_test;
use pipewright_tests::{count, skip};

use crate::plan::{self, Host, Plan, Way};

/// The longest time of a case, after which the whole run ends with the plan.
const CASE: Duration = Duration::from_secs(90);

/// The end of a call.
#[derive(Debug, Clone)]
pub(crate) enum End {
    /// The number in the reply, and its ninth byte.
    Reply(u64, u8),
    Failed,
    Lost,
    /// The deadline, or a cancellation.
    Stopped,
    Other(#[expect(dead_code, reason = "printed")] String),
}

/// A call and its end.
#[derive(Debug, Clone)]
pub(crate) struct Called {
    pub(crate) number: u64,
    pub(crate) end: End,
    took: Duration,
    /// The nanoseconds of the epoch before its begin, and after its end.
    began: u128,
    ended: u128,
}

/// A line in the log of the workers.
#[derive(Debug)]
struct Noted {
    event: String,
    number: u64,
    /// The nanoseconds of the epoch at which its worker began.
    born: u128,
}

impl Noted {
    fn is(&self, event: &str, number: u64) -> bool {
        self.event == event && self.number == number
    }
}

/// The measures of a case.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) calls: Vec<Called>,
    /// The time of the drop or the shutdown of the pool, or of the operations of a channel.
    closing: Duration,
    memory_bytes: usize,
    pub(crate) descriptors: usize,
    pub(crate) processes: usize,
    /// The events of the workers, in their order.
    log: Vec<Noted>,
    left: usize,
    /// The processor time of this process while its workers were silent.
    busy: Duration,
    /// The texts of errors.
    texts: Vec<String>,
}

/// The time for which a silent worker is looked at.
const SILENCE: Duration = Duration::from_millis(600);

impl Seen {
    /// Returns the times of the calls that were answered.
    fn latencies(&self) -> impl Iterator<Item = Duration> + '_ {
        self.calls.iter().filter(|it| matches!(it.end, End::Reply(..))).map(|it| it.took)
    }
}

pub(crate) fn run(plan: &Plan) -> Seen {
    let (alive, watched) = mpsc::channel::<()>();
    let text = format!("{plan:?}");
    thread::spawn(move || {
        if watched.recv_timeout(CASE) == Err(mpsc::RecvTimeoutError::Timeout) {
            // Not by `eprintln!`, which the harness captures.
            let _ = std::io::Write::write_all(
                &mut std::io::stderr(),
                format!("FINDING a case hangs: {text}\n").as_bytes(),
            );
            std::process::abort();
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let (log, lock) = (folder.path().join("log"), folder.path().join("hostile"));
    let role = if plan.has_honest { lock.to_str().unwrap() } else { "-" };
    let mut command = Command::new(env!("CARGO_BIN_EXE_puppet"));
    command.arg(format!("peer={role};{};{};{}", log.display(), plan.ring, plan.script));
    let (descriptors, memory) = (count::handles(), count::rss_bytes());
    reset_peak();
    let peaks = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let is_done = AtomicBool::new(false);
    let notes = Notes::default();
    let closing = thread::scope(|scope| {
        scope.spawn(|| {
            // Refused descriptors exist for a moment, and a machine may be busy: those count that were there at ten
            // looks in a row.
            let mut last = [0; 10];
            // The list of children is read thread by thread, and one may begin while another one ends: those of two
            // looks in a row were there at the same time, each once.
            let mut before = HashSet::new();
            while !is_done.load(Ordering::SeqCst) {
                last.rotate_left(1);
                last[9] = count::handles();
                let lasting = last.into_iter().min().unwrap_or_default();
                peaks[0].fetch_max(lasting, Ordering::SeqCst);
                let now: HashSet<u32> = count::children().into_iter().collect();
                peaks[1].fetch_max(now.intersection(&before).count(), Ordering::SeqCst);
                before = now;
                thread::park_timeout(Duration::from_millis(5));
            }
        });
        let seen = match plan.host {
            Host::Pool => pool(plan, command, &notes),
            Host::Channel => channel(plan, command),
        };
        is_done.store(true, Ordering::SeqCst);
        seen
    });
    let [handles, processes] = peaks.map(AtomicUsize::into_inner);
    let memory_bytes = peak_bytes().saturating_sub(memory);
    let start = Instant::now();
    while !count::children().is_empty() && start.elapsed() < Duration::from_secs(25) {
        thread::park_timeout(Duration::from_millis(2));
    }
    let left = count::children().len();
    drop(alive);
    let Notes { calls, texts, busy } = notes;
    Seen {
        calls: calls.into_inner().unwrap(),
        texts: texts.into_inner().unwrap(),
        busy: busy.into_inner().unwrap(),
        closing,
        memory_bytes,
        descriptors: handles.saturating_sub(descriptors),
        processes,
        log: read_log(&log),
        left,
    }
}

/// The findings of the callers of a pool.
#[derive(Default)]
struct Notes {
    calls: Mutex<Vec<Called>>,
    texts: Mutex<Vec<String>>,
    busy: Mutex<Duration>,
}

fn options(plan: &Plan) -> Options {
    let shared_memory = if plan.ring == 0 { SharedMemory::Off } else { SharedMemory::Auto };
    let ring_bytes = plan.ring.max(64 << 10);
    Options {
        shared_memory,
        ring_bytes,
        max_message_bytes: plan.most,
        handshake_timeout: plan.handshake,
        ..Options::default()
    }
}

fn pool(plan: &Plan, command: Command, notes: &Notes) -> Duration {
    let grace = if plan.is_patient { Duration::MAX } else { Duration::from_millis(300) };
    let options = PoolOptions {
        channel: options(plan),
        min_workers: plan.workers,
        max_workers: plan.workers,
        max_jobs: plan.max_jobs,
        calls_per_worker: plan.calls_per_worker,
        reset_timeout: plan.resets.then_some(Duration::from_millis(300)),
        on_line: plan.takes_lines.then(|| OnLine::new(|line| assert!(line.text.len() <= 48 << 10))),
        cancel_grace: grace,
        backoff: Duration::from_millis(1),
        max_backoff: Duration::from_millis(20),
        shutdown: Schedule {
            goodbye: Duration::from_millis(500),
            terminate: Duration::from_millis(200),
            drain: plan.drain,
        },
        ..PoolOptions::default()
    };
    let pool = Pool::new(command, options).unwrap();
    thread::park_timeout(plan.rest);
    if plan.shuts_down {
        let count = plan.calls * plan.callers;
        let begun: Vec<_> = (0..count as u64)
            .map(|number| {
                (number, Instant::now(), pool.begin(request(plan, number, None)).unwrap())
            })
            .collect();
        let start = Instant::now();
        pool.shut_down();
        let closing = start.elapsed();
        for (number, began, call) in begun {
            note(notes, number, began, &call.wait().map(|reply| reply.into_bytes()));
        }
        return closing;
    }
    thread::scope(|scope| {
        for caller in 0..plan.callers {
            let pool = &pool;
            scope.spawn(move || {
                for number in (0..plan.calls).map(|it| (caller * plan.calls + it) as u64) {
                    let began = Instant::now();
                    let end = call(plan, pool, number);
                    note(notes, number, began, &end);
                }
            });
        }
    });
    if plan.is_patient {
        // The workers exit meanwhile: a cancelled call must not run again.
        thread::park_timeout(Duration::from_millis(1200));
    }
    if plan.is_silent {
        let before = processor_time();
        thread::park_timeout(SILENCE);
        *notes.busy.lock().unwrap() = processor_time().saturating_sub(before);
    }
    let start = Instant::now();
    drop(pool);
    start.elapsed()
}

fn request(plan: &Plan, number: u64, token: Option<&CancelToken>) -> Request {
    let mut body = number.to_le_bytes().to_vec();
    body.resize(plan.bytes.max(8), 7);
    let mut request = Request::new(body).timeout(plan.timeout);
    if plan.is_idempotent {
        request = request.idempotent();
    }
    if plan.way == Way::Pieces {
        request = request.in_pieces(16);
    }
    if let Some(token) = token {
        request = request.cancel(token);
    }
    request
}

fn call(plan: &Plan, pool: &Pool, number: u64) -> Result<Vec<u8>, Error> {
    if plan.way == Way::Call {
        return pool.call(request(plan, number, None)).map(|reply| reply.into_bytes());
    }
    if plan.way == Way::Items {
        let (mut items, call) = pool.begin_with_items(request(plan, number, None))?;
        return thread::scope(|scope| {
            scope.spawn(move || while items.send(vec![5; plan.bytes]).is_ok() {});
            call.wait().map(|reply| reply.into_bytes())
        });
    }
    let mut call = pool.begin(request(plan, number, None))?;
    loop {
        match call.next()? {
            CallEvent::Reply(reply) => return Ok(reply.into_bytes()),
            CallEvent::Question(question) if plan.way == Way::Answers => {
                question.answer(vec![1; 100_000]);
            }
            _ => {}
        }
    }
}

fn note(notes: &Notes, number: u64, began: Instant, end: &Result<Vec<u8>, Error>) {
    if let Err(error) = end {
        notes.texts.lock().unwrap().push(error.to_string());
    }
    let end = match end {
        Ok(bytes) => End::Reply(
            bytes.first_chunk().map_or(u64::MAX, |it| u64::from_le_bytes(*it)),
            bytes.get(8).copied().unwrap_or_default(),
        ),
        Err(error) => match error.kind() {
            ErrorKind::Failed { .. } => End::Failed,
            ErrorKind::Lost { .. } => End::Lost,
            ErrorKind::TimedOut { .. } | ErrorKind::Cancelled => End::Stopped,
            _ => End::Other(error.to_string()),
        },
    };
    let ended = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |it| it.as_nanos());
    // Measured after `ended`: the begin is never too late.
    let took = began.elapsed();
    let began = ended.saturating_sub(took.as_nanos());
    notes.calls.lock().unwrap().push(Called { number, end, took, began, ended });
}

/// Receives until an error, then closes. Returns the longest time of an operation with a timeout.
fn channel(plan: &Plan, mut command: Command) -> Duration {
    let options = Options { timeout: Some(plan.timeout), ..options(plan) };
    let mut channel: Channel = Channel::start(&mut command, &options).unwrap();
    let _ = channel.send_bytes(&[0; 8]);
    let mut longest = Duration::ZERO;
    for _ in 0..3 {
        let start = Instant::now();
        let received = channel.recv().and_then(|message| message.bytes());
        longest = longest.max(start.elapsed());
        if received.is_err() {
            break;
        }
    }
    let start = Instant::now();
    let _ = channel.close();
    longest.max(start.elapsed())
}

fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a live struct.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Makes the kernel measure the peak of this process's memory anew.
fn reset_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<usize>().unwrap() * 1024
}

fn read_log(path: &Path) -> Vec<Noted> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let event = |line: &str| {
        let mut words = line.split(' ');
        let event = words.next()?.to_owned();
        Some(Noted {
            event,
            number: words.next()?.parse().ok()?,
            born: words.next()?.parse().ok()?,
        })
    };
    text.lines().filter_map(event).collect()
}

/// The rounds of a short and of a long run: in each, every family has one case.
const ROUNDS: [usize; 2] = [2, 60];

/// The findings that are known and not mended yet: family and finding. Empty: none.
const EXPECTED: &[(&str, &str)] = &[];

#[isolated_test(limit = Duration::from_secs(3600))]
fn workers_that_do_anything_harm_only_themselves() {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let now = SystemTime::UNIX_EPOCH.elapsed().map_or(1, |it| it.as_nanos() as u64);
    let is_long = variable("PIPEWRIGHT_NET") == "all";
    // The gate has the same cases each time: what others find is the long run's to tell, and stops no unrelated change.
    let seed = variable("PIPEWRIGHT_NET_SEED").parse().unwrap_or(if is_long { now } else { 1 });
    let rounds = ROUNDS[usize::from(is_long)];
    skip::counted(&format!("PIPEWRIGHT_NET_SEED={seed}"));
    let only = variable("PIPEWRIGHT_NET_CASE");
    let (mut cases, mut unexpected, mut known) = (0, Vec::new(), Vec::new());
    let mut latencies = Vec::new();
    for round in 0..rounds {
        for family in plan::FAMILIES.iter().filter(|it| it.name.contains(&only)) {
            let plan = plan::Plan::new(family, seed.wrapping_add(round as u64));
            let seen = run(&plan);
            cases += 1;
            latencies.extend(seen.latencies());
            for finding in findings(&plan, &seen) {
                let line = format!("{} {}: {finding:?}: {plan:?}", family.name, finding.name());
                let is_known = EXPECTED.contains(&(family.name, finding.name()));
                skip::counted(&format!("{} {line}", if is_known { "known" } else { "FINDING" }));
                if is_known { &mut known } else { &mut unexpected }.push(line);
            }
        }
    }
    latencies.sort_unstable();
    let p99 = latencies.get(latencies.len() * 99 / 100).copied().unwrap_or_default();
    skip::counted(&format!(
        "{cases} cases, {} known findings; calls of honest workers: {}, p99 {p99:?}",
        known.len(),
        latencies.len()
    ));
    assert!(unexpected.is_empty(), "seed {seed}:\n{}", unexpected.join("\n"));
}

/// A promise that a case has broken.
#[derive(Debug)]
#[expect(dead_code, reason = "printed")]
pub(crate) enum Finding {
    /// A call or the end of the host took longer than ten times its limit.
    Late(Duration),
    Memory {
        mib: usize,
        most: usize,
    },
    Descriptors {
        seen: usize,
        most: usize,
    },
    Processes {
        seen: usize,
        most: usize,
    },
    /// Processes were left.
    Left(usize),
    /// A call was executed more often than allowed.
    Twice {
        number: u64,
        times: usize,
    },
    /// A cancelled call was sent later.
    Zombie {
        number: u64,
    },
    /// A call failed whose answer an honest worker had sent.
    Lost {
        number: u64,
    },
    /// A call failed though there was time and an honest worker.
    Starved {
        number: u64,
        end: End,
    },
    /// A call got the reply of another one.
    Other {
        number: u64,
        got: u64,
    },
    /// A reply came to a call that cannot have been sent.
    Unsent {
        number: u64,
    },
    Cancels {
        seen: usize,
    },
    /// The host was busy although no worker did anything.
    Busy(Duration),
    /// The text of an error is long, or has what a terminal obeys.
    Text(String),
    /// The host has taken so much of messages that it cannot use.
    Useless {
        mib: u64,
    },
}

impl Finding {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Finding::Late(_) => "late",
            Finding::Memory { .. } => "memory",
            Finding::Descriptors { .. } => "descriptors",
            Finding::Processes { .. } => "processes",
            Finding::Left(_) => "left",
            Finding::Twice { .. } => "twice",
            Finding::Zombie { .. } => "zombie",
            Finding::Lost { .. } => "lost",
            Finding::Starved { .. } => "starved",
            Finding::Other { .. } => "other",
            Finding::Unsent { .. } => "unsent",
            Finding::Cancels { .. } => "cancels",
            Finding::Busy(_) => "busy",
            Finding::Text(_) => "text",
            Finding::Useless { .. } => "useless",
        }
    }
}

/// The most retries of a call: the default of the options.
const RETRIES: usize = 2;

fn findings(plan: &Plan, seen: &Seen) -> Vec<Finding> {
    let mut findings = Vec::new();
    let late = (plan.timeout * 10).max(Duration::from_secs(3));
    let slowest = seen.calls.iter().map(|call| call.took).max().unwrap_or_default();
    if slowest > late {
        findings.push(Finding::Late(slowest));
    }
    // A channel has the timeout; the drop of a pool waits 100 ms; a shutdown has its steps.
    // The goodbye, SIGTERM and the kill take 1.7 s.
    let drained = (plan.drain + Duration::from_millis(1700)) * 5;
    let steps = if plan.shuts_down { drained } else { Duration::from_secs(3) };
    if seen.closing > steps {
        findings.push(Finding::Late(seen.closing));
    }
    bounds(plan, seen, &mut findings);
    // The thread that measures takes some of it.
    if seen.busy > SILENCE / 2 {
        findings.push(Finding::Busy(seen.busy));
    }
    let is_bad = |it: &&String| it.len() > 16 << 10 || it.contains(char::is_control);
    findings.extend(seen.texts.iter().find(is_bad).cloned().map(Finding::Text));
    if seen.left > 0 {
        findings.push(Finding::Left(seen.left));
    }
    let events = |name: &str, number: u64| seen.log.iter().filter(|it| it.is(name, number)).count();
    let allowed = if plan.is_idempotent && plan.way != Way::Items { 1 + RETRIES } else { 1 };
    let mut replies = HashSet::new();
    for call in &seen.calls {
        let number = call.number;
        let times = events("ran", number);
        if times > allowed {
            findings.push(Finding::Twice { number, times });
        }
        match &call.end {
            End::Reply(0x2e2e_2e2e_2e2e_2e2e, b'e') => {
                // Four MiB cannot be on their way to a worker that reads nothing.
                if plan.bytes >= 4 << 20 && times == 0 {
                    findings.push(Finding::Unsent { number });
                }
            }
            End::Reply(got, _) => {
                let is_ghost = *got == 0 || *got == u64::MAX;
                if (*got != number && (plan.is_honest || !is_ghost)) || !replies.insert(number) {
                    findings.push(Finding::Other { number, got: *got });
                }
            }
            End::Failed => {}
            End::Lost if plan.is_honest && events("replied", number) > 0 => {
                findings.push(Finding::Lost { number });
            }
            End::Stopped => {
                if is_begun_after_its_end(call, &seen.calls, &seen.log, plan.is_honest) {
                    findings.push(Finding::Zombie { number });
                }
            }
            end => {
                if plan.shuts_down && plan.is_honest {
                    findings.push(Finding::Starved { number, end: end.clone() });
                }
            }
        }
    }
    let cancels = seen.log.iter().filter(|it| it.event == "cancel").count();
    if cancels > 2 * seen.calls.len() + 10 {
        findings.push(Finding::Cancels { seen: cancels });
    }
    let taken = seen.log.iter().filter(|it| it.event == "taken").map(|it| it.number).max();
    if let Some(bytes) = taken.filter(|bytes| *bytes > plan.most) {
        findings.push(Finding::Useless { mib: bytes >> 20 });
    }
    findings
}

/// Returns true if a worker was sent a call that had been stopped. Only an order of events shows that: a worker may
/// come to read, at any time, what it was sent before.
///
/// It began after the end of the call, and is sent calls only after its handshake; or it got a later call first, as a
/// connection keeps the order; or it had the CANCEL. Without wrong workers no other one may have had that either: the
/// host only has it sent again if that worker is gone.
fn is_begun_after_its_end(call: &Called, all: &[Called], log: &[Noted], is_honest: bool) -> bool {
    let mut begins = log.iter().enumerate().filter(|(_, it)| it.is("ran", call.number));
    begins.any(|(at, ran)| {
        let is_later = |first: &Noted| {
            all.iter().any(|it| it.began > call.ended && first.is("ran", it.number))
        };
        let shows_it = |first: &Noted| {
            let is_same = first.born == ran.born;
            let has_cancel = first.is("cancel", call.number);
            (has_cancel && (is_same || is_honest)) || (is_same && is_later(first))
        };
        ran.born > call.ended || log[..at].iter().any(shows_it)
    })
}

/// Compares with the figures of docs/workers.md.
fn bounds(plan: &Plan, seen: &Seen, findings: &mut Vec<Finding>) {
    let (workers, most) = (plan.workers, plan.most as usize >> 20);
    // The message that is being received from each worker, and for each call its request, a question, an answer and a
    // reply, with copies on their way; 24 MiB are the rings, the stacks, the allocator and the items.
    let messages = if plan.bytes >= 1 << 20 { 4 } else { 2 };
    let allowed =
        24 + ((2 * workers * plan.ring) >> 20) + (workers + messages * plan.callers) * most;
    let mib = seen.memory_bytes >> 20;
    if mib > allowed {
        findings.push(Finding::Memory { mib, most: allowed });
    }
    let processes = 2 * workers;
    if seen.processes > processes {
        findings.push(Finding::Processes { seen: seen.processes, most: processes });
    }
    let descriptors = 8 + 10 * processes;
    if seen.descriptors > descriptors {
        findings.push(Finding::Descriptors { seen: seen.descriptors, most: descriptors });
    }
}

mod tests {
    use pipewright_test_macros::watched_test;

    use super::*;

    /// Returns true if the first of two calls, which ended before the second began, was begun after its end by the
    /// order of these events: event, number of the call, begin of the worker.
    fn is_late(events: &[(&str, u64, u128)], is_honest: bool) -> bool {
        let call = |number, began: u64, ended: u64| {
            let took = Duration::from_nanos(ended - began);
            let (began, ended) = (began.into(), ended.into());
            Called { number, end: End::Stopped, took, began, ended }
        };
        let all = [call(1, 100, 200), call(2, 300, 400)];
        let noted = |(event, number, born): &(&str, u64, u128)| {
            let event = (*event).to_owned();
            Noted { event, number: *number, born: *born }
        };
        let log: Vec<_> = events.iter().map(noted).collect();
        is_begun_after_its_end(&all[0], &all, &log, is_honest)
    }

    #[watched_test]
    fn a_stopped_call_is_late_by_the_order_of_events_and_not_by_time() {
        // However late the worker reads it.
        assert!(!is_late(&[("ran", 1, 50)], true));
        assert!(!is_late(&[("ran", 1, 50), ("cancel", 1, 50), ("ran", 2, 50)], true));
        assert!(!is_late(&[("ran", 2, 60), ("ran", 1, 50)], true));
        // A new worker, a later call before it, its CANCEL before it.
        assert!(is_late(&[("ran", 1, 250)], false));
        assert!(is_late(&[("ran", 2, 50), ("ran", 1, 50)], false));
        assert!(is_late(&[("ran", 1, 50), ("cancel", 1, 50), ("ran", 1, 50)], false));
        let of_another = [("ran", 1, 50), ("cancel", 1, 50), ("ran", 1, 60)];
        assert!(is_late(&of_another, true) && !is_late(&of_another, false));
    }
}
