//! Reports of tests that a machine cannot run: what they need, in a word that `ci/skips.sh` compares with the machine.

use std::fmt;
use std::io::Write as _;

use super::test_hooks::{Forced, NAMES, is_forced};

/// A thing that a test needs, and that a machine may lack. `ci/skips.sh` knows each word, and finds out if the machine
/// has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need<'a> {
    /// Handles of processes (`pidfd_open`).
    Pidfd,
    /// The status of a process that is reaped (`PIDFD_GET_INFO`).
    PidfdInfo,
    /// Reads of pipes that never block, even if others read too.
    TryRead,
    /// A `vfork` that is no `fork`.
    Vfork,
    /// io_uring.
    IoUring,
    /// Linux AIO.
    Aio,
    /// Memory that two processes share.
    SharedMemory,
    /// A control group that this process may fill.
    Cgroup,
    /// A control group of version 1.
    CgroupV1,
    /// A control group of version 2 with the controller `memory`.
    CgroupV2,
    /// A way to limit a tree.
    TreeLimits,
    /// A supervisor of trees.
    Supervisor,
    /// Verbs that block, and no task in their place.
    BlockingVerbs,
    /// Filters that ask another thread (`SECCOMP_RET_USER_NOTIF`).
    SeccompNotify,
    /// Linux of that version, or a later one.
    Kernel(&'a str),
    /// The rights of root.
    Root,
    /// Mounts of its own.
    Mount,
    /// A namespace of users.
    UserNamespace,
    /// A namespace of processes.
    PidNamespace,
    /// A namespace of networks, and `ip`.
    NetworkNamespace,
    /// A filesystem of that kind.
    Filesystem(&'a str),
    /// An ordinary user to whom no control group belongs.
    UserWithoutCgroup,
    /// A target folder that every user may enter.
    PublicTarget,
    /// A program.
    Program(&'a str),
    /// A program of that version, or a later one.
    Version(&'a str, &'a str),
    /// A file.
    File(&'a str),
    /// More than one processor, and none that an emulator stops.
    Processors,
    /// Five thousand handles.
    Handles,
    /// Signals that the parent does not ignore.
    DefaultSignals,
    /// A disk or another block device.
    BlockDevice,
    /// The archive of the compiler's unwinder.
    UnwinderArchive,
    /// A cluster of Slurm.
    Slurm,
    /// Disks that a test may overwrite.
    SpareDisks,
    /// Memory that a test may fill.
    SpareMemory,
    /// A systemd of the user's own.
    SystemdUser,
    /// The workers in C, compiled before.
    CWorkers,
    /// Linux.
    Linux,
    /// Unix.
    Unix,
    /// Windows, and no imitation.
    Windows,
    /// Wine.
    Wine,
    /// A filesystem below the folder of the tests that does something in one way and not in another.
    Storage,
    /// A moment in which nothing else happens.
    Luck,
}

impl fmt::Display for Need<'_> {
    /// Writes the word: `forced:NAME` where `PIPEWRIGHT_FORCE` takes the thing away.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, switches): (&str, &[Forced]) = match self {
            Need::Pidfd => ("pidfd", &[Forced::NoPidfd]),
            Need::PidfdInfo => ("pidfd-info", &[Forced::NoPidfd]),
            Need::TryRead => ("try-read", &[Forced::NoVmsplice]),
            Need::Vfork => ("vfork", &[Forced::NoSharedMemory]),
            Need::IoUring => ("io-uring", &[Forced::NoIoUring]),
            Need::Aio => ("aio", &[]),
            Need::SharedMemory => ("shared-memory", &[Forced::NoMemfd]),
            Need::Cgroup => ("cgroup", &[Forced::NoCgroup]),
            Need::CgroupV1 => ("cgroup-v1", &[Forced::NoCgroup]),
            Need::CgroupV2 => ("cgroup-v2", &[Forced::NoCgroup]),
            Need::TreeLimits => ("tree-limits", &[Forced::NoCgroup]),
            // It is started by vfork, and watched by handles.
            Need::Supervisor => {
                ("supervisor", &[Forced::NoSupervisor, Forced::NoPidfd, Forced::NoSharedMemory])
            }
            Need::BlockingVerbs => ("blocking-verbs", &[Forced::Async]),
            Need::SeccompNotify => ("seccomp-notify", &[]),
            Need::Kernel(version) => return write!(out, "kernel:{version}"),
            Need::Root => ("root", &[]),
            Need::Mount => ("mount", &[]),
            Need::UserNamespace => ("userns", &[]),
            Need::PidNamespace => ("pidns", &[]),
            Need::NetworkNamespace => ("netns", &[]),
            Need::Filesystem(kind) => return write!(out, "filesystem:{kind}"),
            Need::UserWithoutCgroup => ("user-without-cgroup", &[]),
            Need::PublicTarget => ("public-target", &[]),
            Need::Program(name) => return write!(out, "program:{name}"),
            Need::Version(name, version) => return write!(out, "version:{name}:{version}"),
            Need::File(path) => return write!(out, "file:{path}"),
            Need::Processors => ("processors", &[]),
            Need::Handles => ("handles", &[]),
            Need::DefaultSignals => ("default-signals", &[]),
            Need::BlockDevice => ("block-device", &[]),
            Need::UnwinderArchive => ("unwinder-archive", &[]),
            Need::Slurm => ("slurm", &[]),
            Need::SpareDisks => ("spare-disks", &[]),
            Need::SpareMemory => ("spare-memory", &[]),
            Need::SystemdUser => ("systemd-user", &[]),
            Need::CWorkers => ("c-workers", &[]),
            Need::Linux => ("linux", &[]),
            Need::Unix => ("unix", &[]),
            Need::Windows => ("windows", &[]),
            Need::Wine => ("wine", &[]),
            Need::Storage => ("storage", &[]),
            Need::Luck => ("luck", &[]),
        };
        match NAMES.iter().find(|(_, it)| switches.contains(it) && is_forced(*it)) {
            Some((name, _)) => write!(out, "forced:{name}"),
            None => out.write_str(word),
        }
    }
}

/// Prints that the calling test, or part of it, was skipped: what it needs, and a detail. The harness captures
/// `eprintln`.
pub fn skipped(need: Need<'_>, detail: impl fmt::Display) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("unnamed");
    // One line, in one write: the output of other tests goes to the same pipe.
    let line = format!("SKIPPED need={need} {name}: {detail}").trim_end().replace('\n', " ") + "\n";
    let _ = std::io::stderr().write_all(line.as_bytes());
}
