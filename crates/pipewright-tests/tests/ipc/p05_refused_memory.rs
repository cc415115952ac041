//! Promise 5: where shared memory is refused everything works without it, and is counted.

#[cfg(unix)]
use pipewright::Resource;
use pipewright_ipc::{Channel, Options, SharedMemory};
#[cfg(unix)]
use pipewright_tests::isolate;
use pipewright_tests::{bodies, skip, watchdog};
#[cfg(target_os = "linux")]
use pipewright_tests::{mounts, refuse};

use super::start;
#[cfg(unix)]
use super::worker;

/// Sends messages of every kind and has them back. Whether shared memory was used, and why not.
fn works(channel: &mut Channel) -> (bool, Option<String>) {
    let (mut body, mut came) = (Vec::new(), Vec::new());
    for number in 0..40 {
        let length = bodies::length(number);
        bodies::body(number, length, &mut body);
        channel.send_bytes(&body).unwrap();
        channel.recv().unwrap().read_into(&mut came).unwrap();
        bodies::check(number, length, &came, &mut body);
    }
    let stats = channel.stats();
    if !stats.shared_memory {
        assert_eq!(stats.sent.shared_frames + stats.received.shared_frames, 0);
        assert_eq!(stats.sent.inline_bytes, stats.sent.bytes);
    }
    (stats.shared_memory, stats.fallback)
}

#[test]
fn off_on_one_side_is_off_on_both() {
    let _watch = watchdog::watch();
    let (used, why) = works(&mut start("echo,shm=off", &Options::default()));
    assert_eq!((used, why.as_deref()), (false, Some("the other side has it off")));
    let off = Options { shared_memory: SharedMemory::Off, ..Options::default() };
    assert_eq!(works(&mut start("echo", &off)), (false, None));
}

#[test]
fn it_is_used_where_it_is_there() {
    let _watch = watchdog::watch();
    let (used, why) = works(&mut start("echo", &Options::default()));
    if skip::is_forced_off("memfd") {
        assert!(!used && why.is_some());
        return skip::skipped("this build has no memfd");
    }
    assert_eq!((used, why), (true, None));
}

#[cfg(unix)]
#[test]
fn a_worker_without_the_means_works_without_it() {
    let _watch = watchdog::watch();
    // A file may have no more than 4096 bytes there: the object cannot be made, and whoever tries to
    // is ended by a signal.
    let mut command = worker("echo");
    command.rlimit(Resource::FileSize, Some(4096), None);
    let mut channel: Channel = Channel::start(&mut command, &Options::default()).unwrap();
    let (used, why) = works(&mut channel);
    assert!(!used && why.is_some(), "{why:?}");
}

#[cfg(unix)]
#[test]
fn a_host_without_the_means_works_without_it() {
    isolate::isolated("p05_refused_memory::a_host_without_the_means_works_without_it", || {
        let _watch = watchdog::watch();
        let few = rustix::process::Rlimit { current: Some(4096), maximum: None };
        rustix::process::setrlimit(rustix::process::Resource::Fsize, few).unwrap();
        let (used, why) = works(&mut start("echo", &Options::default()));
        assert!(!used && why.is_some(), "{why:?}");
    });
}

#[cfg(target_os = "linux")]
#[test]
fn a_system_that_has_no_room_or_forbids_it_is_done_without() {
    isolate::isolated(
        "p05_refused_memory::a_system_that_has_no_room_or_forbids_it_is_done_without",
        || {
            let _watch = watchdog::watch();
            let refusals = [
                (libc::SYS_fallocate, libc::ENOSPC, "No space"),
                (libc::SYS_ftruncate, libc::EPERM, "not permitted"),
                (libc::SYS_memfd_create, libc::EACCES, "Permission denied"),
                (libc::SYS_memfd_create, libc::ENOSYS, "not implemented"),
            ];
            for (call, errno, words) in refusals {
                // For the worker too. Of two filters the later one says with which error.
                refuse::refuse(&[call], errno);
                let (used, why) = works(&mut start("echo", &Options::default()));
                let why = why.unwrap_or_default();
                assert!(!used && (skip::is_forced_off("memfd") || why.contains(words)), "{why}");
                let required =
                    Options { shared_memory: SharedMemory::Required, ..Options::default() };
                let started: Result<Channel, _> = Channel::start(&mut worker("echo"), &required);
                assert!(started.is_err());
            }
        },
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_small_folder_for_shared_memory_is_no_limit() {
    isolate::isolated("p05_refused_memory::a_small_folder_for_shared_memory_is_no_limit", || {
        let _watch = watchdog::watch();
        let small = mounts::private().and_then(|()| {
            let words = ["-t", "tmpfs", "-o", "size=64k", "tmpfs", "/dev/shm"];
            mounts::run("mount", &words)
        });
        if let Err(why) = small {
            return skip::skipped(&why);
        }
        let _small = mounts::Mounted::at("/dev/shm".into());
        let (used, why) = works(&mut start("echo", &Options::default()));
        assert!(used || skip::is_forced_off("memfd"), "{why:?}");
    });
}
