//! Nothing is left in /dev/shm and temp folders, and no handle, process or memory, after 1,000 connections and
//! 200 SIGKILLs at random points.

use std::collections::BTreeSet;
use std::fs;
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;
#[cfg(target_os = "linux")]
use std::os::unix::net::UnixStream;
use std::time::Duration;

#[cfg(target_os = "linux")]
use pipewright::{Handle, Resource};
#[cfg(target_os = "linux")]
use pipewright_ipc::ErrorKind;
use pipewright_ipc::{Channel, Options, SharedMemory};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::{alive, bodies, count, pace, skip, watchdog};
#[cfg(target_os = "linux")]
use pipewright_tests::{kernel, mounts};

use crate::{both_ways, start, worker};

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
    // By its words: the number may be a part of a size or a time in the line of another program.
    let is_own = |line: &&str| line.split_whitespace().any(|word| word == own);
    names.extend(shm.lines().filter(is_own).map(str::to_owned));
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

/// Sends messages of every kind and receives them back. Returns true if shared memory was used, and the reason
/// if not.
fn works(channel: &mut Channel) -> (bool, Option<String>) {
    let (mut body, mut received) = (Vec::new(), Vec::new());
    for number in 0..40 {
        let length = bodies::length(number);
        bodies::body(number, length, &mut body);
        channel.send_bytes(&body).unwrap();
        channel.recv().unwrap().read_into(&mut received).unwrap();
        bodies::check(number, length, &received, &mut body);
    }
    let stats = channel.stats();
    if !stats.shared_memory {
        assert_eq!(stats.sent.shared_frames + stats.received.shared_frames, 0);
        assert_eq!(stats.sent.inline_bytes, stats.sent.bytes);
    }
    (stats.shared_memory, stats.fallback)
}

#[watched_test]
fn shared_memory_off_on_one_side_is_off_on_both() {
    let (used, reason) = works(&mut start("echo,shm=off", &Options::default()));
    assert_eq!((used, reason.as_deref()), (false, Some("the other side has shared memory off")));
    let off = Options { shared_memory: SharedMemory::Off, ..Options::default() };
    assert_eq!(works(&mut start("echo", &off)), (false, None));
}

#[watched_test]
fn shared_memory_is_used_if_available() {
    let (used, reason) = works(&mut start("echo", &Options::default()));
    if skip::is_forced_off("memfd") {
        assert!(!used && reason.is_some());
        return skip::skipped(skip::Need::SharedMemory, "this build has no memfd");
    }
    assert_eq!((used, reason), (true, None));
}

// On macOS the limit says nothing about objects in memory.
#[cfg(target_os = "linux")]
#[watched_test]
fn a_worker_without_shared_memory_works() {
    // A file may have no more than 4096 bytes there: the object cannot be created, and a signal ends the
    // process that tries to.
    let mut command = worker("echo");
    command.rlimit(Resource::FileSize, Some(4096), None);
    let mut channel: Channel = Channel::start(&mut command, &Options::default()).unwrap();
    let (used, reason) = works(&mut channel);
    assert!(!used && reason.is_some(), "{reason:?}");
}

#[cfg(target_os = "linux")]
#[isolated_test]
fn a_host_without_shared_memory_works() {
    let few = rustix::process::Rlimit { current: Some(4096), maximum: None };
    rustix::process::setrlimit(rustix::process::Resource::Fsize, few).unwrap();
    let (used, reason) = works(&mut start("echo", &Options::default()));
    assert!(!used && reason.is_some(), "{reason:?}");
}

#[cfg(target_os = "linux")]
#[isolated_test]
fn no_space_or_no_permission_falls_back_to_the_socket() {
    let refusals = [
        (libc::SYS_madvise, libc::EINVAL, "madvise: Invalid argument"),
        (libc::SYS_fallocate, libc::ENOSPC, "fallocate: No space"),
        (libc::SYS_ftruncate, libc::EPERM, "ftruncate: Operation not permitted"),
        (libc::SYS_memfd_create, libc::EACCES, "memfd_create: Permission denied"),
        (libc::SYS_memfd_create, libc::ENOSYS, "memfd_create: Function not implemented"),
    ];
    for (call, errno, words) in refusals {
        // For the worker too. Of two filters the later one decides the error.
        kernel::refuse(&[call], errno);
        let (used, reason) = works(&mut start("echo", &Options::default()));
        let reason = reason.unwrap_or_default();
        assert!(!used && (skip::is_forced_off("memfd") || reason.contains(words)), "{reason}");
        let required = Options { shared_memory: SharedMemory::Required, ..Options::default() };
        let started: Result<Channel, _> = Channel::start(&mut worker("echo"), &required);
        assert!(started.is_err());
    }
}

/// Opens all handles that this process may open, except that many.
#[cfg(target_os = "linux")]
fn leave_room_for(free: usize) -> Vec<std::fs::File> {
    let mut all: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    all.truncate(all.len() - free);
    all
}

#[cfg(target_os = "linux")]
#[isolated_test]
fn without_free_handles_the_channel_uses_the_socket() {
    if skip::is_forced_off("memfd") {
        return skip::skipped(skip::Need::SharedMemory, "this build has no memfd");
    }
    if skip::is_forced_async() {
        return skip::skipped(skip::Need::BlockingVerbs, "a runtime takes handles of its own");
    }
    let files = rustix::process::Resource::Nofile;
    let most = rustix::process::getrlimit(files);
    let few = rustix::process::Rlimit { current: Some(64), ..most };
    rustix::process::setrlimit(files, few).unwrap();
    let pair = || UnixStream::pair().unwrap();
    let handles = |(one, other)| [one, other].map(|it| Handle::from(OwnedFd::from(it)));
    // Tests a host: the first step creates its own object, the second receives the worker's.
    let steps = [Some("memfd_create"), Some("cannot receive a handle"), None];
    for (free, step) in steps.into_iter().enumerate() {
        let [ours, theirs] = handles(pair());
        let variables =
            pipewright_os::channel::handle_channel::variables("PIPEWRIGHT_IPC", &theirs);
        let child = worker("echo").spawn_worker(theirs, variables).unwrap();
        let all = leave_room_for(free);
        let mut host: Channel = Channel::as_host(ours, &Options::default()).unwrap();
        drop(all);
        let (used, reason) = works(&mut host);
        assert_eq!(used, step.is_none());
        let expected = step.map(|it| format!("{it}: Too many open files (os error 24)"));
        assert_eq!(reason, expected);
        // A child that is dropped while it runs is reaped by a thread, which would close its handle while the next
        // round counts on there being no room.
        drop(host);
        assert!(child.wait().unwrap().success());
        drop(child);
        count::handles_at_rest();
    }
    // Tests its worker, which here runs in the same process: only the host's handles have room.
    let [ours, theirs] = handles(pair());
    let all = leave_room_for(1);
    let greeted = || Channel::as_worker(theirs, &Options::default()).unwrap();
    let worker = std::thread::spawn(greeted);
    let mut host: Channel = Channel::as_host(ours, &Options::default()).unwrap();
    let mut worker: Channel = worker.join().unwrap();
    drop(all);
    assert!(!host.stats().shared_memory && !worker.stats().shared_memory);
    host.send_bytes(b"a question").unwrap();
    assert_eq!(worker.recv().unwrap().bytes().unwrap(), b"a question");
    // After the handshake it is an I/O error of the receiver.
    let one = [Handle::from(std::fs::File::open("/dev/null").unwrap())];
    let all = leave_room_for(0);
    host.send_with_handles(b"with a handle", &one).unwrap();
    let error = worker.recv().map(drop).unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Io, "{error}");
    let words = "cannot communicate with the other side: Too many open files";
    assert!(error.to_string().starts_with(words), "{error}");
    drop(all);
}

#[cfg(target_os = "linux")]
#[isolated_test]
fn a_small_dev_shm_is_no_limit() {
    let small = mounts::private().and_then(|()| {
        let words = ["-t", "tmpfs", "-o", "size=64k", "tmpfs", "/dev/shm"];
        mounts::run("mount", &words).map_err(|error| skip::Lack::new(skip::Need::Mount, error))
    });
    if let Err(lack) = small {
        return lack.skip();
    }
    let _small = mounts::Mounted::at("/dev/shm".into());
    let (used, reason) = works(&mut start("echo", &Options::default()));
    assert!(used || skip::is_forced_off("memfd"), "{reason:?}");
}
