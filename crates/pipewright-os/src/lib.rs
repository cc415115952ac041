//! The platform layer of pipewright.
//!
//! This is the only crate of the family with `unsafe`, with calls into the operating system and
//! with platform `cfg`s. It promises nothing to the outside: depend on `pipewright` instead.
//!
//! A folder is a concept, and its `mod.rs` is the contract: documentation and one-line calls into
//! the file of the platform at hand. Decisions (retry, cap, order, policy) live in the crates
//! above; here live calls and the layout of their arguments.
//!
//! | concept | what it does |
//! |---|---|
//! | [`handle`] | an owned file descriptor or HANDLE, and what kind of thing it refers to |
//! | [`pipe`] | pipes, with a mode for each end |
//! | [`stdio`] | the null device and the console |
//! | [`spawn`] | starts a child from a [`spawn::Plan`] |
//! | [`std_process`] | the parts of `std::process` in std's shape that need `unsafe` or know the platform |
//! | [`exit`] | the end of a child: wait for it, be woken by it, signal it safely |
//! | [`status`] | what the child said when it ended |
//! | [`process`] | a process that is named by its number |
//! | [`terminal`] | which job has the terminal |
//! | [`tree`] | the descendants of a child |
//! | [`contain`] | a hold of everything that a child ever starts |
//! | [`signal`] | signal names and numbers |
//! | [`mux`] | bytes, exits and wake-ups from several sources on one thread |
//! | [`wake`] | a flag that another thread can raise and a multiplexer can wait for |
//! | [`link`] | a two-way stream to another process, which carries handles |
//! | [`shm`] | memory that one process writes and another one reads |
//! | [`memory`] | large buffers: hints about them, and what stands where in them |
//! | [`helper`] | threads of our own in somebody else's program |
//! | [`generation`] | tells this process from a fork of it |
//! | [`park`] | a wait of the calling thread for what a task would wait for |
//! | [`mod@file`] | files whose bytes are named by their place |
//! | [`aligned`] | memory for direct I/O |
//! | [`ring`], [`aio`], [`port`] | operations on files that the kernel carries out meanwhile |
//! | [`why_not`] | why they cannot be used on this machine |
//! | [`thread_usage`] | how often a thread slept, and what it had the disks do |
//! | [`os_text`] | text that need not be Unicode, taken apart |
//! | [`cause`] | what an error of the system means |
//! | [`probe`] | what this machine offers, and which handles this process has |
//! | [`machine`] | what this machine is, for figures that are measured on it |
//! | [`cpu`] | which processors there are for us, and on which a thread runs |
//! | [`usage`] | what this process has used |
//! | [`conduit`] | pipes, FIFOs and sockets as two plain files, for measuring them |
//!
//! Built with `--cfg pipewright_force_fallback` every facility newer than the oldest supported
//! kernel is left unused, so that the suites prove the second-best ways too; a value
//! (`="pidfd"`, `="close_range"`, `="clone3"`, `="cgroup"`, `="supervisor"`, `="io_uring"`, `="memfd"`,
//! `="rwf_nowait"`) leaves out only that one; `="vmsplice"` leaves out `RWF_NOWAIT` as well; and `="vfork"` makes
//! forks of starts, as an emulator may.

pub mod aio;
pub mod aligned;
pub mod cause;
pub mod conduit;
pub mod contain;
pub mod cpu;
pub mod exit;
pub mod file;
#[cfg(all(pipewright_force_async, feature = "tokio"))]
pub mod forced;
pub mod generation;
pub mod handle;
pub mod helper;
pub mod link;
pub mod machine;
pub mod memory;
pub mod mux;
pub mod os_text;
pub mod park;
pub mod pipe;
pub mod port;
pub mod probe;
pub mod process;
pub mod ring;
pub mod shm;
pub mod signal;
pub mod spawn;
pub mod status;
pub mod std_process;
pub mod stdio;
pub mod terminal;
pub mod thread_usage;
pub mod tree;
pub mod usage;
pub mod wake;
pub mod why_not;

mod absent;
#[cfg(target_os = "linux")]
mod fallback;
#[cfg(any(target_os = "linux", windows))]
mod in_kernel;
#[cfg(windows)]
mod lasting;
#[cfg(windows)]
mod overlapped;
#[cfg(windows)]
mod security;

// The bare system calls for credentials take 16-bit numbers on 32-bit x86 and ARM (setuid(2)).
#[cfg(all(target_os = "linux", not(target_pointer_width = "64")))]
compile_error!("pipewright supports 64-bit Linux");

// `rt_sigaction` is called by its number, with the layout that all others have: on Alpha and SPARC it takes
// another argument, on MIPS the flags come first and a set of signals has 128 bits.
#[cfg(all(
    target_os = "linux",
    any(target_arch = "sparc64", target_arch = "mips64", target_arch = "mips64r6")
))]
compile_error!("pipewright does not know how this processor's Linux handles signals");
