//! The platform layer of pipewright.
//!
//! This is the only crate of the family with `unsafe`, with calls into the operating system and
//! with platform `cfg`s. It promises nothing to the outside: depend on `pipewright` instead.
//!
//! A folder is a concept, and its `mod.rs` is the contract: documentation and one-line calls into
//! the file of the platform at hand. Decisions (retry, cap, order, policy) live in the crates
//! above; here live calls and the layout of their arguments.
//!
//! Each group of concepts is a module with a feature of its name, so that a program compiles only
//! what it uses. A group uses only the groups that the table names, and no modules of a group use each
//! other in a circle. A test holds both.
//!
//! | group | feature | uses | contents |
//! |---|---|---|---|
//! | [`base`] | always there | | handles, pipes, standard streams, signals, waiting |
//! | [`process`] | `process` (default) | `base` | starts, ends, trees, terminals |
//! | [`channel`] | `ipc` | `base`, `process` | a stream that carries handles, and shared memory |
//! | [`disk`] | `disk` | `base`, `host` | files, io_uring, Linux AIO, completion ports |
//! | [`host`] | `host` | `base` | facts about this machine |
//!
//! Built with `--cfg pipewright_force_fallback` every facility newer than the oldest supported
//! kernel is left unused, so that the suites prove the second-best ways too; a value
//! (`="pidfd"`, `="close_range"`, `="clone3"`, `="cgroup"`, `="supervisor"`, `="io_uring"`, `="memfd"`,
//! `="rwf_nowait"`) leaves out only that one; and `="vfork"` makes forks of starts, as an emulator may.

pub mod base;
#[cfg(feature = "ipc")]
pub mod channel;
#[cfg(feature = "disk")]
pub mod disk;
#[cfg(feature = "host")]
pub mod host;
#[cfg(feature = "process")]
pub mod process;

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
