//! The supervisor: a program of a few kilobytes that owns a tree of processes and ends it.
//!
//! `build.rs` compiles it without any library, not even the C library. `src/process/contain/linux/image.rs`
//! keeps it in memory, and `src/process/start/linux/contained.rs` starts it twice for each tree:
//!
//! ```text
//! host ── guard ── supervisor ── the command ── its descendants
//! ```
//!
//! Both are subreapers (prctl(2), PR_SET_CHILD_SUBREAPER): a descendant whose parent ends becomes the supervisor's
//! child, whatever session it is in. When the host ends or releases the tree, the supervisor kills its children until
//! it has none. If the supervisor is killed, its children become the guard's, which then does the same. If the guard is
//! killed, the supervisor sees the end of the guard. If the supervisor is stopped, the guard continues it.
//!
//! The program receives these handles under fixed numbers:
//! * 0: a socket to the host, for reports; when the host closes it, the tree has to end
//! * 1: a pidfd of the host, or nothing
//! * 2: for the supervisor, a pidfd of the guard, or nothing; for the guard, an eventfd that the supervisor
//!   waits for before it starts the command, unless this machine is already known to allow supervision
//! * 3: `cgroup.kill` of the tree's cgroup, or nothing
//! * 4: the parent directory of the cgroup, or nothing
//! * 5: the list of its own children, `/proc/thread-self/children`
//! * 6: for the supervisor of a slot, the memory of the plans
//!
//! Its arguments are its role, the process that it watches (the command; for the guard the supervisor), the name of the
//! cgroup, the paths of three groups of cgroup version 1, or empty ones, and `figures` if the host reads figures of the
//! groups after the end, and `lives on` if the tree need not end with the host. The groups and the cgroup are removed
//! (`groups.rs`). In a trial it supervises no process, and reports only that it could. The supervisor of a slot starts
//! the commands itself, one after another (`start.rs`).

#![no_std]
#![no_main]
// The compiler must not turn loops into calls of `memcpy`: here that would be such a loop (`system.rs`).
#![no_builtins]

mod groups;
#[path = "../nolibc/mod.rs"]
#[expect(dead_code, reason = "the host uses the rest")]
mod nolibc;
mod sizes;
mod start;
mod system;

use nolibc::message::{self, CAN_WORK, ENDED, ENDED_LAST, STOPPED, TREE_ENDED};
use system::{Arguments, PollSet, Reaped};

/// The argument of a tree that lives on if the host ends.
const LIVES_ON: usize = 8;

/// The pause between two passes over the children: most processes killed in one pass have ended by the
/// next.
const PASS_NANOS: i64 = 300_000;
/// The time without any exit after which all children are killed once more.
const KILL_AGAIN_NANOS: i64 = 10_000_000;
/// The number of [`KILL_AGAIN_NANOS`] periods for which the guard leaves the work to the supervisor.
const GUARD_WAITS: u32 = 100;

#[derive(PartialEq, Eq)]
enum Role {
    Supervisor,
    Guard,
}

struct WatchedTree {
    role: Role,
    /// The watched process. For the supervisor: the command. For the guard: the supervisor.
    subject: i32,
    subject_has_ended: bool,
    /// The number of processes that ended because the tree had to end.
    killed: i64,
    finishing: bool,
    /// The host has been sent the message that no process is left.
    end_reported: bool,
}

/// Runs the program; `_start` calls it.
fn run(arguments: &Arguments) -> ! {
    if arguments.first_letter(1) == b't' {
        let errno = system::can_work();
        if errno == 0 {
            system::send(&[CAN_WORK, 0, 0, 0, 0, 0]);
        }
        system::exit(errno)
    }
    let mut tree = WatchedTree::supervised(arguments.number(2));
    if arguments.first_letter(1) == b'g' {
        tree.role = Role::Guard;
    }
    if tree.role == Role::Guard {
        if system::must_prove() {
            let errno = system::can_work();
            if errno != 0 {
                // The supervisor sees this process end, and does not start the command.
                system::exit(errno)
            }
            system::prove();
        }
        system::leave_session();
    }
    system::leave_directory_and_block_signals();
    if arguments.first_letter(1) == b'c' {
        start::serve();
    }
    // Without a free handle number nothing can be watched, so no process may be left running.
    let exits = system::child_exit_signalfd().unwrap_or_else(|| {
        tree.finishing = true;
        system::NO_FD
    });
    let mut poll_set = PollSet::new(exits, system::AT_END);
    let mut waits_left = GUARD_WAITS;
    let mut kills = false;
    while tree.reap() {
        if !tree.finishing {
            if poll_set.wait() {
                // A process that had ended before was not killed.
                tree.reap();
                tree.finishing = true;
            }
            continue;
        }
        if !kills && arguments.first_letter(LIVES_ON) != 0 {
            // Only the host asks for the end. Without it, nobody is left to hold the tree for.
            if system::host_has_ended() && !system::end_is_requested() {
                system::exit(0);
            }
        }
        kills = true;
        if tree.role == Role::Supervisor || tree.subject_has_ended {
            system::kill_cgroup();
            system::kill_children();
        } else if waits_left > 0 {
            waits_left -= 1;
            system::resume(tree.subject);
        } else {
            // The supervisor is stopped for good, or traced: kill it, and its children come here.
            system::kill(tree.subject);
        }
        system::pause(PASS_NANOS);
        system::wait_for_children(exits, KILL_AGAIN_NANOS);
    }
    if (tree.role == Role::Supervisor && !tree.end_reported) || tree.killed > 0 {
        system::send(&[TREE_ENDED, tree.killed, 0, 0, 0, 0]);
    }
    if tree.role == Role::Guard && groups::are_read(arguments) {
        // If the host is killed before, nobody else removes them.
        system::wait_for_end_of_host();
        groups::remove(arguments);
    } else if tree.finishing && system::host_has_ended() {
        groups::remove(arguments);
    } else {
        // A host that is killed before it has seen the end would leave it behind.
        groups::remove_unless_read(arguments);
    }
    system::exit(0)
}

impl WatchedTree {
    fn supervised(subject: i32) -> WatchedTree {
        WatchedTree {
            role: Role::Supervisor,
            subject,
            subject_has_ended: false,
            killed: 0,
            finishing: false,
            end_reported: false,
        }
    }

    /// Reaps the children that have ended. Returns false if none is left.
    fn reap(&mut self) -> bool {
        // Kept until the next result, which shows if this child was the last.
        let mut ended: Option<[i64; 5]> = None;
        loop {
            let reaped = system::reap();
            if let Some([who_and_how, user_micros, system_micros, peak_kib, switches]) =
                ended.take()
            {
                let no_children = matches!(reaped, Reaped::NoChildren);
                self.end_reported =
                    no_children && self.role == Role::Supervisor && self.killed == 0;
                let kind = if self.end_reported { ENDED_LAST } else { ENDED };
                system::send(&[kind, who_and_how, user_micros, system_micros, peak_kib, switches]);
            }
            match reaped {
                Reaped::Ended(pid, [status, user_micros, system_micros, peak_kib, switches]) => {
                    let is_subject = pid == self.subject;
                    if is_subject != (self.role == Role::Guard) {
                        // The guard does not know which of its adopted children is the command.
                        let who_and_how = message::pid_and_status(pid, status as i32);
                        ended = Some([who_and_how, user_micros, system_micros, peak_kib, switches]);
                    }
                    if is_subject {
                        self.subject_has_ended = true;
                        // The processes that the supervisor has left behind must end.
                        self.finishing |= self.role == Role::Guard;
                    } else if self.finishing {
                        self.killed += 1;
                    }
                }
                Reaped::Stopped(pid) if self.role == Role::Guard => {
                    // The command, or a stray signal, has stopped the supervisor, which would not see its end any more.
                    if pid == self.subject {
                        system::resume(pid);
                    }
                }
                Reaped::Stopped(pid) => {
                    let reports = pid == self.subject;
                    // The queue of stops must not grow so long that a host which does not read loses the
                    // end.
                    if reports && system::has_room_for_stops() {
                        system::send(&[STOPPED, i64::from(pid), 0, 0, 0, 0]);
                    }
                }
                Reaped::NoneReady => return true,
                Reaped::NoChildren => return false,
            }
        }
    }
}
