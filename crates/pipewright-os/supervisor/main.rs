//! The supervisor: a program of a few kilobytes that owns a tree of processes, and ends it.
//!
//! `build.rs` compiles it, without a library, not even the C one; `src/contain/linux/image.rs` keeps
//! it in memory, and `src/spawn/linux/supervised.rs` starts it, twice for each tree:
//!
//! ```text
//! host ── guard ── supervisor ── the command ── whatever that starts
//! ```
//!
//! Both are subreapers (prctl(2), PR_SET_CHILD_SUBREAPER): a descendant whose parent ends becomes
//! the supervisor's child, whatever session it has made for itself. When the host has gone, or has
//! let go of the tree, the supervisor kills its children until it has none. If it is killed itself
//! they become the guard's, which then does the same; if the guard is killed, its end tells the
//! supervisor.
//!
//! It is handed, under fixed numbers:
//! * 0: a socket to the host, for reports; that the host lets go of it means that the tree is to end
//! * 1: a pidfd of the host, or nothing
//! * 2: for the supervisor, a pidfd of the guard, or nothing; for the guard, where this machine has not
//!   been seen yet to let all of this work, what the supervisor waits for before it starts the command
//! * 3: `cgroup.kill` of the tree's cgroup, or nothing
//! * 4: the directory that the cgroup is in, or nothing
//! * 5: the list of its own children, `/proc/thread-self/children`
//!
//! and as arguments its role, the process that it is about (the command; for the guard the
//! supervisor), and the cgroup's name. On trial it has nobody to look after, and tells whether it
//! could.

#![no_std]
#![no_main]
// The compiler must not make calls of `memcpy` out of loops: there is nobody to call.
#![no_builtins]

mod call;
mod sizes;
mod system;

use system::{Arguments, Reaped, Watch};

/// The kinds of message; `src/contain/linux/report.rs` reads them.
const ENDED: i64 = 1;
/// The command, and nobody is left: the host need not be told twice, nor ask.
const ENDED_LAST: i64 = 6;
const TREE_ENDED: i64 = 2;
const STOPPED: i64 = 4;
const CAN_WORK: i64 = 5;

/// Between two passes over the children: most of those killed in one have ended by the next.
const PASS_NANOS: i64 = 300_000;
/// How long nobody may end before everybody is killed once more.
const AGAIN_NANOS: i64 = 10_000_000;
/// How many times [`AGAIN_NANOS`] the guard leaves the supervisor to its work.
const PATIENCE: u32 = 100;

#[derive(PartialEq, Eq)]
enum Role {
    Supervisor,
    Guard,
}

struct Tree {
    role: Role,
    /// Of the supervisor: the command. Of the guard: the supervisor.
    subject: i32,
    subject_has_ended: bool,
    /// How many processes ended because the tree was to end.
    killed: i64,
    finishing: bool,
    /// The host knows that nobody is left.
    told: bool,
}

/// The program; `_start` calls it.
fn run(arguments: &Arguments) -> ! {
    if arguments.first_letter(1) == b't' {
        if system::can_work() {
            system::send(&[CAN_WORK, 0, 0, 0, 0, 0]);
        }
        system::exit()
    }
    let mut tree = Tree {
        role: if arguments.first_letter(1) == b'g' { Role::Guard } else { Role::Supervisor },
        subject: arguments.number(2),
        subject_has_ended: false,
        killed: 0,
        finishing: false,
        told: false,
    };
    if tree.role == Role::Guard {
        if system::is_on_proof() {
            if !system::can_work() {
                // The supervisor sees our end, and starts nothing.
                system::give_up()
            }
            system::prove();
        }
        system::leave_session();
    }
    system::become_quiet();
    // Without room for one more handle nothing can be watched, so nothing may be left.
    let ends = system::ends_of_children().unwrap_or_else(|| {
        tree.finishing = true;
        system::NOTHING
    });
    let mut watch = Watch::new(ends);
    let mut patience = PATIENCE;
    while tree.reap() {
        if !tree.finishing {
            if watch.wait() {
                // Who had ended before was not killed.
                tree.reap();
                tree.finishing = true;
            }
            continue;
        }
        if tree.role == Role::Supervisor || tree.subject_has_ended {
            system::kill_cgroup();
            system::kill_children();
        } else if patience > 0 {
            patience -= 1;
            system::wake(tree.subject);
        } else {
            // Stopped for good, or traced: it goes, and its work comes here.
            system::kill(tree.subject);
        }
        system::pause(PASS_NANOS);
        system::wait_for_children(ends, AGAIN_NANOS);
    }
    if (tree.role == Role::Supervisor && !tree.told) || tree.killed > 0 {
        system::send(&[TREE_ENDED, tree.killed, 0, 0, 0, 0]);
    }
    if tree.finishing {
        system::remove_cgroup(arguments.text(3));
    }
    system::exit()
}

impl Tree {
    /// Reaps whoever has ended. `false`: nobody is left.
    fn reap(&mut self) -> bool {
        // Kept until the next answer, which tells whether it was the last.
        let mut ended: Option<[i64; 5]> = None;
        loop {
            let reaped = system::reap();
            if let Some([pid, status, user_micros, system_micros, peak_kib]) = ended.take() {
                let nobody_left = matches!(reaped, Reaped::NobodyLeft);
                self.told = nobody_left && self.role == Role::Supervisor && self.killed == 0;
                let kind = if self.told { ENDED_LAST } else { ENDED };
                system::send(&[kind, pid, status, user_micros, system_micros, peak_kib]);
            }
            match reaped {
                Reaped::One(pid, [status, user_micros, system_micros, peak_kib]) => {
                    let is_subject = pid == self.subject;
                    if is_subject != (self.role == Role::Guard) {
                        // The guard does not know which of those that it has adopted it is.
                        let pid = i64::from(pid);
                        ended = Some([pid, status, user_micros, system_micros, peak_kib]);
                    }
                    if is_subject {
                        self.subject_has_ended = true;
                        // Whom the supervisor has left behind is to end.
                        self.finishing |= self.role == Role::Guard;
                    } else if self.finishing {
                        self.killed += 1;
                    }
                }
                Reaped::Stopped(pid) => {
                    let tells = pid == self.subject && self.role == Role::Supervisor;
                    // A host that does not listen must not lose the end for a queue of stops.
                    if tells && system::little_is_unread() {
                        system::send(&[STOPPED, i64::from(pid), 0, 0, 0, 0]);
                    }
                }
                Reaped::NobodyYet => return true,
                Reaped::NobodyLeft => return false,
            }
        }
    }
}
