//! The messages between host and supervisor, and the layout of the plans that a slot's requests refer to.
//!
//! A plan is a list of words, then strings. It lies in a memory that the host writes and the supervisor maps, at
//! an address that the supervisor has reported. All pointers in it are addresses of the supervisor, so nothing
//! has to be copied or changed before the exec. The host writes it only while no start is in progress.
//!
//! The supervisor checks a plan again each time it reads a word: it never reads beyond the memory, whatever the
//! plan contains. Strings are read by the kernel alone.

use super::call;
use super::number;

/// The words of a request: its kind, the number of the job, the bytes of the plan.
pub(crate) const REQUEST_WORDS: usize = 3;
/// The most bytes of a plan. The kernel refuses arguments and environments of more than 6 MiB (execve(2)).
pub(crate) const PLAN_BYTES: usize = 16 << 20;
/// The most handles of a start, stdio and the working directory included (unix(7), `SCM_RIGHTS`).
pub(crate) const MOST_HANDLES: usize = 253;

/// The words of a message of the supervisor. The first is its kind.
pub(crate) const MESSAGE_WORDS: usize = 6;

/// The kinds of the supervisor's messages. The end of the command, or of a process that the guard had to adopt.
pub(crate) const ENDED: i64 = 1;
/// No process is left.
pub(crate) const TREE_ENDED: i64 = 2;
/// The result of a start.
pub(crate) const STARTED: i64 = 3;
pub(crate) const STOPPED: i64 = 4;
/// This machine allows the work of a supervisor.
pub(crate) const CAN_WORK: i64 = 5;
/// The command ended and no process is left: the host needs neither a second message nor a query.
pub(crate) const ENDED_LAST: i64 = 6;
/// A slot can start commands.
pub(crate) const READY: i64 = 7;

/// Returns the word of an end that names the process and its status.
pub(crate) fn pid_and_status(pid: i32, status: i32) -> i64 {
    (i64::from(status) << 32) | i64::from(pid)
}

/// Returns the process and its status.
pub(crate) fn of_pid_and_status(word: i64) -> (i32, i32) {
    (word as i32, (word >> 32) as i32)
}

const START: i64 = 1;
const END_TREE: i64 = 2;

/// A request of the host.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(test, derive(Debug))]
pub(crate) enum Request {
    /// Starts the command of the plan, which has that many bytes. Its handles come with the message.
    Start { job: i64, bytes: usize },
    /// Kills what is left of that job.
    EndTree { job: i64 },
}

impl Request {
    pub(crate) fn to_words(self) -> [i64; REQUEST_WORDS] {
        match self {
            Request::Start { job, bytes } => [START, job, bytes as i64],
            Request::EndTree { job } => [END_TREE, job, 0],
        }
    }

    /// Returns the request with those words; `None` if there is none.
    pub(crate) fn of_words(words: &[i64; REQUEST_WORDS]) -> Option<Request> {
        let [kind, job, bytes] = *words;
        match kind {
            START if bytes >= 0 && bytes <= PLAN_BYTES as i64 => {
                Some(Request::Start { job, bytes: bytes as usize })
            }
            END_TREE => Some(Request::EndTree { job }),
            _ => None,
        }
    }
}

/// The places of the words at the beginning of a plan.
pub(crate) mod field {
    /// The addresses of arrays that end with 0: the arguments, the environment, the paths to try.
    pub(crate) const ARGV: usize = 0;
    pub(crate) const ENVP: usize = 1;
    pub(crate) const CANDIDATES: usize = 2;
    /// The address of a string, or 0.
    pub(crate) const CURRENT_DIR: usize = 3;
    pub(crate) const FLAGS: usize = 4;
    /// One of [`group`](super::group), and the number of the group to join.
    pub(crate) const GROUP: usize = 5;
    pub(crate) const GROUP_ID: usize = 6;
    pub(crate) const UMASK: usize = 7;
    /// A signed number.
    pub(crate) const NICE: usize = 8;
    /// The address and the number of limits, each of three words: resource, soft, hard.
    pub(crate) const LIMITS: usize = 9;
    pub(crate) const LIMIT_COUNT: usize = 10;
    /// The address and the number of the targets of the handles in the message.
    pub(crate) const TARGETS: usize = 11;
    pub(crate) const TARGET_COUNT: usize = 12;
    /// The set of signals that get their default action.
    pub(crate) const DEFAULT_SIGNALS: usize = 13;
    pub(crate) const COUNT: usize = 14;
}

/// The bits of [`field::FLAGS`].
pub(crate) mod flag {
    /// The candidates come from a search.
    pub(crate) const SEARCHES: u64 = 1;
    /// The host starts the command again if a stop signal is pending.
    pub(crate) const MAY_RETRY: u64 = 2;
    /// The command ignores SIGCHLD, as the host does.
    pub(crate) const IGNORES_SIGCHLD: u64 = 4;
    pub(crate) const HAS_UMASK: u64 = 8;
    pub(crate) const HAS_NICE: u64 = 16;
    /// The command has no handle with the number 0; the next two bits are for 1 and 2.
    pub(crate) const CLOSES_STDIN: u64 = 32;
}

/// The values of [`field::GROUP`].
pub(crate) mod group {
    pub(crate) const SAME: u64 = 0;
    pub(crate) const OWN: u64 = 1;
    pub(crate) const JOIN: u64 = 2;
    pub(crate) const SESSION: u64 = 3;
}

/// The target of the handle of the working directory, which gets no number.
pub(crate) const CURRENT_DIR_HANDLE: u64 = u64::MAX;
/// The target of the handle of the terminal that the command's session takes, which gets no number.
pub(crate) const TERMINAL_HANDLE: u64 = u64::MAX - 1;
/// The target of the handle of a `cgroup.procs` that the command joins, which gets no number.
pub(crate) const GROUP_HANDLE: u64 = u64::MAX - 2;
/// The target of the handle of the cgroup that the command is born in, which gets no number.
pub(crate) const CGROUP_HANDLE: u64 = u64::MAX - 3;
/// The target of the handle of the `cgroup.procs` that the command joins if it is not born there, which gets no number.
pub(crate) const CGROUP_PROCS_HANDLE: u64 = u64::MAX - 4;

/// A plan in memory.
#[derive(Clone, Copy)]
pub(crate) struct Plan<'a> {
    words: &'a [u64],
    /// The address of the first word, for the supervisor.
    base: u64,
}

impl<'a> Plan<'a> {
    pub(crate) fn new(words: &'a [u64], base: u64) -> Plan<'a> {
        Plan { words, base }
    }

    /// Returns a word of the beginning; 0 if the plan is too short.
    pub(crate) fn word(&self, field: usize) -> u64 {
        match self.words.get(field) {
            Some(word) => *word,
            None => 0,
        }
    }

    pub(crate) fn has(&self, flag: u64) -> bool {
        self.word(field::FLAGS) & flag != 0
    }

    /// Returns the words from the address in that field to the end of the memory; `None` outside it.
    pub(crate) fn array(&self, field: usize) -> Option<&'a [u64]> {
        let offset = self.word(field).checked_sub(self.base)?;
        if offset % 8 != 0 {
            return None;
        }
        self.words.get(usize::try_from(offset / 8).ok()?..).filter(|words| !words.is_empty())
    }

    /// Returns the list at the address in one field, with the number of its entries, each of that many words, in the
    /// other. `None` outside the memory.
    pub(crate) fn list(&self, array: usize, count: usize, width: usize) -> Option<&'a [u64]> {
        match usize::try_from(self.word(count)).ok()? {
            0 => Some(&[]),
            count => self.array(array)?.get(..count.checked_mul(width)?),
        }
    }
}

/// Sends words, and a handle with them if there is one. The socket may have no room; nobody may be listening.
///
/// # Errors
/// `ETOOMANYREFS`: too many handles of this user are in transit through sockets (unix(7)).
pub(crate) fn send(socket: i32, words: &[i64], handle: Option<i32>, flags: usize) -> isize {
    const MSG_NOSIGNAL: usize = 0x4000;
    let mut rights = Rights::<1> {
        bytes: RIGHTS_HEADER_BYTES + size_of::<i32>(),
        level: SOL_SOCKET,
        kind: SCM_RIGHTS,
        handles: [handle.unwrap_or(-1)],
    };
    let mut part = Part { base: words.as_ptr().cast_mut().cast(), length: size_of_val(words) };
    let mut message = Message::of(&mut part);
    if handle.is_some() {
        message.control = (&raw mut rights).cast();
        message.control_bytes = size_of::<Rights<1>>();
    }
    let place = &raw const message as usize;
    call(number::SENDMSG, [socket as usize, place, flags | MSG_NOSIGNAL, 0, 0, 0])
}

pub(crate) const SOL_SOCKET: i32 = 1;
pub(crate) const SCM_RIGHTS: i32 = 1;

/// The kernel's struct iovec.
#[repr(C)]
pub(crate) struct Part {
    pub(crate) base: *mut u8,
    pub(crate) length: usize,
}

/// The kernel's struct user_msghdr.
#[repr(C)]
pub(crate) struct Message {
    name: usize,
    name_bytes: usize,
    parts: *mut Part,
    part_count: usize,
    pub(crate) control: *mut u8,
    pub(crate) control_bytes: usize,
    pub(crate) flags: usize,
}

impl Message {
    /// Returns a message of that part alone, without handles.
    pub(crate) fn of(part: &mut Part) -> Message {
        Message {
            name: 0,
            name_bytes: 0,
            parts: part,
            part_count: 1,
            control: core::ptr::null_mut(),
            control_bytes: 0,
            flags: 0,
        }
    }
}

/// A control message with handles, as cmsg(3) lays it out.
#[repr(C)]
pub(crate) struct Rights<const N: usize, T = i32> {
    pub(crate) bytes: usize,
    pub(crate) level: i32,
    pub(crate) kind: i32,
    pub(crate) handles: [T; N],
}

/// The size of its header.
pub(crate) const RIGHTS_HEADER_BYTES: usize = 16;
