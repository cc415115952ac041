//! Nothing is left in /dev/shm and temp folders, and no handle, process or memory, after 1,000 connections and
//! 200 SIGKILLs at random points.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use pipewright_ipc::{Channel, Options};
use pipewright_test_macros::isolated_test;
#[cfg(target_os = "linux")]
use pipewright_test_macros::watched_test;
#[cfg(target_os = "linux")]
use pipewright_tests::skip;
use pipewright_tests::{alive, count, pace, watchdog};

use super::{both_ways, start, worker};

/// The number of connections. Under Wine each takes a fifth of a second.
fn connections() -> u64 {
    if cfg!(windows) { 100 } else { pace::rounds(1_000, 100) as u64 }
}

fn kills() -> u64 {
    if cfg!(windows) { 30 } else { pace::rounds(200, 30) as u64 }
}

/// Returns the names in the places where shared memory, sockets and semaphores are left behind.
fn names() -> BTreeSet<String> {
    let folders = ["/dev/shm", "/dev/mqueue", "/run/lock"].map(str::to_owned);
    let temporary = std::env::temp_dir().display().to_string();
    let mut names = BTreeSet::new();
    for folder in folders.into_iter().chain([temporary]) {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            // Other tests and programs create and remove their own.
            if name.contains("pipewright") && name.contains("ipc") {
                names.insert(format!("{folder}/{name}"));
            }
        }
    }
    // System V memory has no name.
    let shm = fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    let own = std::process::id().to_string();
    names.extend(shm.lines().filter(|line| line.contains(&own)).map(str::to_owned));
    names
}

/// Runs one connection with a few messages.
fn connect(round: u64, options: &Options) -> Channel {
    let mut channel = start("echo,ring=65536", options);
    let body = vec![round as u8; (round * 1_237 % 90_000) as usize];
    channel.send_bytes(&body).unwrap();
    assert_eq!(channel.recv().unwrap().bytes().unwrap(), body);
    channel
}

/// Runs one connection, and kills its worker at some point.
fn kill_one(round: u64, options: &Options) {
    let mark = ("PIPEWRIGHT_KILLED_TEST", round.to_string());
    let mut command = worker("source,ring=65536");
    command.env(mark.0, alive::mark(&mark.1));
    // The point is some time after the start, which is during the handshake at first.
    let after = Duration::from_micros(round * 37 % 5_000);
    let killer = std::thread::spawn(move || {
        watchdog::until("the worker runs or has ended", || {
            !alive::marked(mark.0, &mark.1).is_empty()
        });
        std::thread::park_timeout(after);
        alive::marked(mark.0, &mark.1).into_iter().for_each(alive::kill);
    });
    let ended = Channel::<_, _>::start(&mut command, options).and_then(|mut channel: Channel| {
        let mut received = Vec::new();
        loop {
            channel.recv()?.read_into(&mut received)?;
        }
    });
    let error = match ended {
        Ok(()) => unreachable!(),
        Err(error) => error,
    };
    assert!(error.is_disconnect(), "{error}");
    killer.join().unwrap();
}

/// The worker of a killed host ends with it, and so does the rest of its tree.
#[cfg(target_os = "linux")]
#[watched_test]
fn no_control_group_of_a_killed_hosts_workers_is_left() {
    let mut alone = pipewright::Command::new(env!("CARGO_BIN_EXE_puppet"));
    alone.arg("exit=0").kill_on_parent_exit(pipewright::Scope::Tree);
    if let Err(error) = alone.status() {
        // Nothing could remove it.
        return skip::skipped(skip::Need::Supervisor, error);
    }
    let mut command = worker("calls,ring=65536");
    command.stderr(pipewright::Stdio::piped());
    let mut host: Channel = Channel::start(&mut command, &Options::default()).unwrap();
    host.send_bytes(b"hold-pool").unwrap();
    let (stderr, mut line) = (host.worker_mut().unwrap().stderr.take().unwrap(), String::new());
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stderr), &mut line).unwrap();
    let pid = line.trim_end().strip_prefix("pid ").unwrap().parse().unwrap();
    let host = host.worker().unwrap();
    let groups = alive::cgroups_made_by(host.id());
    host.signal(pipewright::Signal::KILL).unwrap();
    watchdog::until("its worker ends", || !alive::is_running(pid));
    watchdog::until("no group is left", || alive::cgroups_made_by(host.id()).is_empty());
    if groups.is_empty() {
        skip::skipped(skip::Need::Cgroup, "this machine has no cgroup");
    }
}

#[isolated_test(limit = Duration::from_secs(600))]
fn nothing_is_left_after_a_thousand_connections_and_two_hundred_kills() {
    let [on, off] = both_ways();
    let settled = || {
        watchdog::until("workers are reaped", || count::children().is_empty());
        // The reaper, and the thread that starts children which end with us.
        watchdog::until("threads have gone", || count::threads() <= 5);
        (count::handles(), count::kept_bytes())
    };
    let named = names();
    (0..50).for_each(|round| drop(connect(round, &on)));
    // The first use allocates permanent resources.
    (0..20).for_each(|round| kill_one(round, if round % 4 == 3 { &off } else { &on }));
    let (handles, memory) = settled();
    for round in 0..connections() {
        let channel = connect(round, if round % 4 == 3 { &off } else { &on });
        match round % 3 {
            0 => drop(channel),
            _ => assert!(channel.close().unwrap().unwrap().success()),
        }
    }
    (0..kills()).for_each(|round| kill_one(round, if round % 4 == 3 { &off } else { &on }));
    let (handles_after, memory_after) = settled();
    // Without pidfds a thread that waits for an exit has a handle of its own, and ends later.
    watchdog::until("there are no more handles than before", || {
        handles_after <= handles || count::handles() <= handles
    });
    assert_eq!(names(), named);
    assert_eq!(count::zombies(), Vec::<u32>::new());
    let grown = memory_after.saturating_sub(memory);
    assert!(grown < count::KEPT_NOISE_BYTES, "memory has grown by {grown} bytes");
}
