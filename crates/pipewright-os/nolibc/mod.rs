//! The code of a start that two programs contain: this library, and the supervisor, which has no library at all.
//!
//! A process between clone and exec shares the memory of the one that creates it, and the thread-local storage of its
//! thread. That thread sleeps meanwhile, or, if a supervisor creates the child, waits for its message; the other
//! threads run. So nothing here allocates, locks, panics or unwinds. Each call is made by its number: it touches no
//! `errno`, and is no cancellation point, which would end the thread of the parent.
//!
//! | file | contents |
//! |---|---|
//! | `steps.rs` | the steps between clone and exec; below them the creation of a process, a wait, and a raw call |
//! | `message.rs` | messages between host and supervisor, and the layout of plans |
//! | `children.rs` | the end of all children |

#[cfg(target_os = "linux")]
pub(crate) mod children;
#[cfg(target_os = "linux")]
pub(crate) mod message;
#[cfg(target_os = "linux")]
pub(crate) mod steps;

#[cfg(target_os = "linux")]
pub(crate) use steps::{PollFd, call, number, poll};

/// The numbers of the steps of a start, for the report of a child to its parent. macOS has them too.
pub(crate) mod step {
    pub(crate) const CREATE: u32 = 0;
    pub(crate) const GROUP: u32 = 1;
    pub(crate) const LIMIT: u32 = 2;
    pub(crate) const UMASK: u32 = 3;
    pub(crate) const NICE: u32 = 4;
    pub(crate) const CHROOT: u32 = 5;
    pub(crate) const IDENTITY: u32 = 6;
    pub(crate) const CURRENT_DIR: u32 = 7;
    pub(crate) const STDIO: u32 = 8;
    pub(crate) const INHERIT: u32 = 9;
    pub(crate) const CLOSE_OTHERS: u32 = 10;
    pub(crate) const PARENT_DEATH: u32 = 11;
    pub(crate) const EXEC: u32 = 12;
    pub(crate) const CONTAIN: u32 = 13;
    pub(crate) const PRE_EXEC: u32 = 14;
    pub(crate) const TERMINAL: u32 = 15;
    pub(crate) const TREE_LIMITS: u32 = 16;
    /// The program was loaded, and its start could not be reported.
    #[cfg(target_os = "linux")]
    pub(crate) const CONFIRM: u32 = 17;

    /// Returns the number of a step with an index.
    pub(crate) const fn with_index(step: u32, index: usize) -> u32 {
        step | ((index as u32) << 8)
    }

    /// Returns the step and the index of a number.
    pub(crate) const fn parts(number: u32) -> (u32, usize) {
        (number & 0xff, (number >> 8) as usize)
    }
}
