//! The platform layer of pipewright.
//!
//! This is the only pipewright crate with `unsafe`, with calls into the operating system and with platform
//! `cfg`s. Its API is not stable: depend on `pipewright` instead.
//!
//! Each file or folder of a group is a concept. It begins with the contract: documentation and one-line calls into
//! `imp`, which is the module of the current platform: further down, or a file beside it if it is long. Decisions
//! (retry, cap, order, policy) belong to the crates above; this crate has the calls and the layout of their arguments.
//!
//! Each group of concepts is a module and, except `base`, a feature, so that a program compiles only the code it
//! uses. A group uses only the groups that the table names, and the modules of a group do not use each
//! other in a circle. A test checks both.
//!
//! | group | feature | uses | contents |
//! |---|---|---|---|
//! | [`base`] | always there | | handles, pipes, standard streams, signals, waiting |
//! | [`process`] | `process` (default) | `base` | starts, ends, trees, terminals |
//! | [`channel`] | `ipc` | `base`, `process` | a stream that passes handles, and shared memory |
//! | [`disk`] | `disk` | `base`, `host` | files, io_uring, Linux AIO, completion ports |
//! | [`host`] | `host` | `base` | facts about this machine |
//!
//! The feature `closed-stdio` is for programs: it adds a function that runs before `main` (see
//! [`base::stdio::was_closed`]).
//!
//! A build with `--cfg pipewright_test_hooks` can do without optional facilities of the kernel, so that the suites test
//! the fallbacks too: see [`base::test_hooks`].

pub mod base;
#[cfg(feature = "ipc")]
pub mod channel;
#[cfg(feature = "disk")]
pub mod disk;
#[cfg(feature = "host")]
pub mod host;
#[cfg(feature = "process")]
pub mod process;

// The raw system calls for credentials take 16-bit numbers on 32-bit x86 and ARM (setuid(2)).
#[cfg(all(target_os = "linux", not(target_pointer_width = "64")))]
compile_error!("pipewright supports 64-bit Linux");

// The library calls `rt_sigaction` by its number, with the layout that all other processors have: on Alpha
// and SPARC the call takes another argument; on MIPS the flags come first and a set of signals has 128
// bits.
#[cfg(all(
    target_os = "linux",
    any(target_arch = "sparc64", target_arch = "mips64", target_arch = "mips64r6")
))]
compile_error!("pipewright does not know how this processor's Linux handles signals");
