//! The requests of a host to the supervisor of a slot, and the layout of the plans that they refer to. The
//! library contains this file too.
//!
//! A plan is a list of words, then strings. It lies in a memory that the host writes and the supervisor maps, at
//! an address that the supervisor has reported. All pointers in it are addresses of the supervisor, so nothing
//! has to be copied or changed before the exec. The host writes it only while no start is in progress.
//!
//! The supervisor checks a plan again each time it reads a word: it never reads beyond the memory, whatever the
//! plan contains. Strings are read by the kernel alone.

/// The words of a request: its kind, the number of the job, the bytes of the plan.
pub(crate) const REQUEST_WORDS: usize = 3;
/// The most bytes of a plan. The kernel refuses arguments and environments of more than 6 MiB (execve(2)).
pub(crate) const PLAN_BYTES: usize = 16 << 20;
/// The most handles of a start, stdio and the working directory included (unix(7), `SCM_RIGHTS`).
pub(crate) const MOST_HANDLES: usize = 253;

/// The kinds of the supervisor's messages that only a slot has; the others are in `main.rs`.
pub(crate) const READY: i64 = 7;
pub(crate) const STARTED: i64 = 3;

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
    pub(crate) const COUNT: usize = 13;
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

/// The numbers of the steps of a start, as in `src/process/spawn/steps.rs`.
pub(crate) mod step {
    pub(crate) const CREATE: u32 = 0;
    pub(crate) const GROUP: u32 = 1;
    pub(crate) const LIMIT: u32 = 2;
    pub(crate) const NICE: u32 = 4;
    pub(crate) const CURRENT_DIR: u32 = 7;
    pub(crate) const STDIO: u32 = 8;
    pub(crate) const INHERIT: u32 = 9;
    pub(crate) const EXEC: u32 = 12;
    pub(crate) const TERMINAL: u32 = 15;
    pub(crate) const TREE_LIMITS: u32 = 16;

    /// Returns the number of a step with an index.
    pub(crate) const fn with_index(step: u32, index: usize) -> u32 {
        step | ((index as u32) << 8)
    }
}

/// The substitute for an error number if a stop signal is pending.
pub(crate) const STOP_PENDING: i32 = i32::MAX;

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

    /// Returns the number of the handles that belong to the plan.
    pub(crate) fn handle_count(&self) -> usize {
        self.count(field::TARGET_COUNT, MOST_HANDLES)
    }

    /// Returns the number that a handle gets; `None` beyond the last one.
    pub(crate) fn target(&self, index: usize) -> Option<u64> {
        if index >= self.handle_count() {
            return None;
        }
        self.at(self.word(field::TARGETS), index)
    }

    /// Returns a limit; `None` beyond the last one.
    pub(crate) fn limit(&self, index: usize) -> Option<[u64; 3]> {
        if index >= self.count(field::LIMIT_COUNT, self.words.len()) {
            return None;
        }
        let limits = self.word(field::LIMITS);
        let first = index.checked_mul(3)?;
        Some([self.at(limits, first)?, self.at(limits, first + 1)?, self.at(limits, first + 2)?])
    }

    /// Returns the address of a path to try; `None` beyond the last one.
    pub(crate) fn candidate(&self, index: usize) -> Option<u64> {
        self.at(self.word(field::CANDIDATES), index).filter(|address| *address != 0)
    }

    /// Returns true if the arrays that the kernel reads lie in the memory.
    pub(crate) fn is_whole(&self) -> bool {
        let has = |field| self.at(self.word(field), 0).is_some();
        has(field::ARGV) && has(field::ENVP) && has(field::CANDIDATES)
    }

    fn count(&self, field: usize, most: usize) -> usize {
        let count = self.word(field);
        if count <= most as u64 { count as usize } else { 0 }
    }

    /// Returns the word with that index in the array at an address; `None` outside the memory.
    fn at(&self, array: u64, index: usize) -> Option<u64> {
        let offset = array.checked_sub(self.base)?;
        if offset % 8 != 0 {
            return None;
        }
        let place = (offset / 8).checked_add(index as u64)?;
        self.words.get(usize::try_from(place).ok()?).copied()
    }
}
