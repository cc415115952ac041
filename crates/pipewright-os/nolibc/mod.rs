//! The code of a start that two programs contain: this library, and the supervisor, which has no library at all.
//!
//! A process between clone and exec shares the memory of the one that creates it, and the thread-local storage of its thread.
//! That thread sleeps meanwhile, or, if a supervisor creates the child, waits for its message; the other threads run. So nothing
//! here allocates, locks, panics or unwinds. Each call is made by its number: it touches no `errno`, and is no cancellation
//! point, which would end the thread of the parent.
//!
//! | file | contents |
//! |---|---|
//! | `call.rs`, `number.rs` | a system call, and the numbers of all |
//! | `clone.rs` | the creation of a process |
//! | `steps.rs`, `step.rs` | the steps between clone and exec, and their numbers in reports |
//! | `message.rs` | messages between host and supervisor, and the layout of plans |
//! | `children.rs` | the end of all children |

#[cfg(target_os = "linux")]
pub(crate) mod call;
#[cfg(target_os = "linux")]
pub(crate) mod children;
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
))]
pub(crate) mod clone;
#[cfg(target_os = "linux")]
pub(crate) mod message;
#[cfg(target_os = "linux")]
pub(crate) mod number;
pub(crate) mod step;
#[cfg(target_os = "linux")]
pub(crate) mod steps;
