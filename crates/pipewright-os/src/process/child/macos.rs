//! A child is reaped by `wait4`, and a kqueue reports when it is time for that.
//!
//! macOS has no handle on a process through which a signal could be sent. An unreaped child keeps its
//! number, and this process reaps it. So a signal goes by the number, under the lock that the reap takes.
//! Other code of this program may still reap the child (`waitpid(-1)`). So the start time is compared
//! first, to see that the number is still the child's; the moment between the check and the signal remains.
//!
//! `waitid` is not used: it reports stops when asked for ends (golang/go#19314).

use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use super::{ContainedTree, Containment};
use crate::base::signal::Signal;
use crate::base::wake::EventSource;
use crate::process::kqueue::ExitWatch;
use crate::process::libproc::{ProcessInfo, StartTime, is_taken, kill, members_of, rss_bytes};
use crate::process::member::Member;
use crate::process::status::{Ended, wait4};
use crate::process::usage::Usage;

/// The polling interval for a child if a kqueue cannot be created.
const LOOK_PAUSE: Duration = Duration::from_millis(5);

/// The longest wait for killed members of a group, and the pause between two looks.
const GROUP_END_WAIT: Duration = Duration::from_secs(1);
const END_PAUSE: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct ChildHandle {
    pid: i32,
    /// The start time, which distinguishes it from another process with that number.
    start_time: Option<StartTime>,
    ended: Mutex<Option<Ended>>,
    /// The kqueue, made at the first wait.
    watch: OnceLock<ExitWatch>,
    /// The guard, which kills the child, or its group, when this process ends.
    guard: Option<Guard>,
    pub(crate) containment: Containment,
    pub(crate) tree: Option<Box<dyn ContainedTree>>,
    /// The group that holds a tree.
    group: Option<Box<HeldGroup>>,
}

/// The group of a tree. Its number is that of the child, which the reap frees: from then on the group is ours as long
/// as one of the members that were there lives.
#[derive(Debug, Default)]
struct HeldGroup {
    /// The processes of this library in it.
    guards: Vec<u32>,
    leftovers: OnceLock<Vec<Member>>,
    killed: OnceLock<u32>,
}

/// Returns the event of the exit. Without room for a kqueue no descriptor reports it.
pub(super) fn source(exit: &ChildHandle) -> EventSource<'_> {
    exit.pollable().map_or(EventSource::UNWAITABLE, EventSource::Readable)
}

impl ChildHandle {
    /// Takes ownership of a child that has not been reaped yet.
    pub(crate) fn new(pid: i32) -> ChildHandle {
        ChildHandle {
            pid,
            start_time: StartTime::of(pid as u32),
            ended: Mutex::new(None),
            watch: OnceLock::new(),
            guard: None,
            containment: Containment::None,
            tree: None,
            group: None,
        }
    }

    /// Makes the group of a child that does not run yet end with it.
    pub(crate) fn with_held_group(self) -> ChildHandle {
        let own = self.pid();
        let guards = members_of(own).into_iter().filter(|pid| *pid != own).collect();
        ChildHandle { group: Some(Box::new(HeldGroup { guards, ..HeldGroup::default() })), ..self }
    }

    /// Adds a guard, which outlives this process.
    pub(crate) fn with_guard(self, guard: Guard) -> ChildHandle {
        ChildHandle { guard: Some(guard), ..self }
    }

    pub(super) fn already_ended() -> ChildHandle {
        let exit = ChildHandle::new(0);
        *exit.lock() = Some(Ended::default());
        exit
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid as u32
    }

    pub(super) fn wait(&self) -> io::Result<Ended> {
        loop {
            if let Some(ended) = self.try_wait()? {
                return Ok(ended);
            }
            // Not under the lock: another thread may need it to send a signal.
            match self.watch() {
                Ok(watch) => watch.wait()?,
                Err(_) => thread::park_timeout(LOOK_PAUSE),
            }
        }
    }

    pub(super) fn wait_exclusive(&mut self) -> io::Result<Ended> {
        if self.guard.is_some() || self.group.is_some() {
            // The guard has to be informed before the reap, and the group to be seen.
            return self.wait();
        }
        let mut state = self.lock();
        match self.reap(&mut state, 0)? {
            Some(ended) => Ok(ended),
            // Cannot happen without WNOHANG; not worth a panic if it does.
            None => Err(io::Error::from_raw_os_error(libc::ECHILD)),
        }
    }

    pub(super) fn try_wait(&self) -> io::Result<Option<Ended>> {
        if self.guard.is_some() || self.group.is_some() {
            // Needed to see the end before the reap. Ignored: polling works too.
            let _ = self.watch();
        }
        let mut state = self.lock();
        if state.is_some() {
            return Ok(*state);
        }
        // NOTE_EXIT comes a moment before wait4 finds the child. To report "still running" then would make
        // the caller spin, or wait for ever (libuv/libuv#3521).
        let has_fired = self.watch.get().is_some_and(ExitWatch::has_fired);
        if (self.guard.is_some() || self.group.is_some()) && !has_fired && !self.is_gone() {
            return Ok(None);
        }
        if let Some(guard) = &self.guard {
            guard.notify_ended();
        }
        self.note_leftovers();
        self.reap(&mut state, if has_fired { 0 } else { libc::WNOHANG })
    }

    fn reap(&self, state: &mut Option<Ended>, options: i32) -> io::Result<Option<Ended>> {
        if state.is_none() {
            *state = match wait4(self.pid, options) {
                Ok(reaped) => reaped.map(|(status, usage)| Ended { status, usage: Some(usage) }),
                // It was reaped elsewhere. The kqueue has the status if it existed in time.
                Err(error) if error.raw_os_error() == Some(libc::ECHILD) => {
                    let status = self.watch.get().and_then(ExitWatch::take_status);
                    Some(Ended { status: status.ok_or(error)?, usage: None })
                }
                Err(error) => return Err(error),
            };
        }
        Ok(*state)
    }

    pub(super) fn take_stop(&self) -> bool {
        let mut state = self.lock();
        if state.is_some() || ProcessInfo::of(self.pid()).is_none_or(|state| state.is_ending()) {
            // The next wait reports its end.
            return false;
        }
        match wait4(self.pid, libc::WNOHANG | libc::WUNTRACED) {
            Ok(Some((status, _))) if libc::WIFSTOPPED(status.into_raw()) => {
                drop(state);
                self.is_stopped()
            }
            Ok(Some((status, usage))) => {
                // It has ended meanwhile.
                if let Some(guard) = &self.guard {
                    guard.notify_ended();
                }
                *state = Some(Ended { status, usage: Some(usage) });
                false
            }
            Ok(None) | Err(_) => false,
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        let ended = self.lock();
        ended.is_none() && ProcessInfo::of(self.pid()).is_some_and(|state| state.is_stopped())
    }

    pub(super) fn signal(&self, signal: Signal) -> io::Result<bool> {
        let ended = self.lock();
        if ended.is_some() || !self.is_unreaped() {
            return Ok(false);
        }
        kill(self.pid, signal)
    }

    pub(super) fn signal_group(&self, signal: Signal) -> io::Result<bool> {
        let ended = self.lock();
        if ended.is_some() || !self.is_unreaped() {
            return Ok(false);
        }
        match kill(-self.pid, signal) {
            // EPERM is also the error for a group of zombies.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) && !self.group_lives() => {
                Ok(false)
            }
            done => done,
        }
    }

    fn group_lives(&self) -> bool {
        let lives = |pid: u32| ProcessInfo::of(pid).is_some_and(|state| !state.is_ending());
        members_of(self.pid()).into_iter().any(lives)
    }

    pub(super) fn group_survives_reap(&self) -> bool {
        false
    }

    pub(super) fn group_is_alive(&self) -> bool {
        let ended = self.lock();
        ended.is_none() && self.is_unreaped() && self.group_lives()
    }

    /// Finds the members of the group that holds the tree. Call this only while the child is not reaped.
    fn note_leftovers(&self) {
        let Some(group) = &self.group else { return };
        let own = self.pid();
        let is_other = |pid: &u32| *pid != own && !group.guards.contains(pid);
        // Ignored: without room for a handle it is not found.
        let open = |pid| Member::of(pid).ok().flatten();
        let is_in = |member: &Member| member.is_alive() && member.group() == Some(own);
        group.leftovers.get_or_init(|| {
            let pids = members_of(own).into_iter().filter(is_other);
            pids.filter_map(open).filter(is_in).collect()
        });
    }

    pub(super) fn end_group(&self) -> u32 {
        let Some(group) = &self.group else { return 0 };
        *group.killed.get_or_init(|| {
            // Ignored, here and below: what has ended needs no signal, and what has changed its user cannot be killed.
            let is_running = self.owns_pid();
            if is_running {
                self.note_leftovers();
            }
            let leftovers = group.leftovers.get().map_or(&[][..], Vec::as_slice);
            let alive: Vec<&Member> = leftovers.iter().filter(|it| it.is_alive()).collect();
            if is_running {
                let _ = self.signal_group(Signal::KILL);
            }
            if alive.is_empty() {
                return 0;
            }
            // With those that they have started since.
            let _ = kill(-self.pid, Signal::KILL);
            let until = Instant::now() + GROUP_END_WAIT;
            for member in &alive {
                let _ = member.signal(Signal::KILL);
                while member.is_alive() && Instant::now() < until {
                    thread::park_timeout(END_PAUSE);
                }
            }
            u32::try_from(alive.len()).unwrap_or(u32::MAX)
        })
    }

    pub(super) fn is_group_leader(&self) -> bool {
        self.is_in_group(self.pid())
    }

    pub(super) fn is_in_group(&self, group: u32) -> bool {
        let ended = self.lock();
        let is_in = |state: ProcessInfo| state.group == group;
        ended.is_none() && ProcessInfo::of(self.pid()).is_some_and(is_in)
    }

    pub(super) fn rss_bytes(&self) -> Option<u64> {
        // A reap takes this lock, so the child keeps its number meanwhile.
        let ended = self.lock();
        if ended.is_some() || !self.is_unreaped() { None } else { rss_bytes(self.pid()) }
    }

    pub(super) fn owns_pid(&self) -> bool {
        let ended = self.lock();
        ended.is_none() && self.is_unreaped()
    }

    /// Returns false if it has been reaped elsewhere: then its number is free or another process's. Call
    /// this only while it is not reaped here.
    fn is_unreaped(&self) -> bool {
        match (self.start_time, StartTime::of(self.pid())) {
            (Some(then), Some(now)) => then == now,
            // It runs as another user now, or a sandbox refuses the lookup. A debugger replaces its parent,
            // but not in the case of such a child.
            _ => ProcessInfo::of(self.pid())
                .map_or_else(|| is_taken(self.pid()), |state| state.parent == std::process::id()),
        }
    }

    /// Returns true if it has ended, or has been reaped elsewhere. Call this only while it is not reaped
    /// here.
    fn is_gone(&self) -> bool {
        let gone = || !is_taken(self.pid());
        ProcessInfo::of(self.pid()).map_or_else(gone, |state| state.has_ended())
            || !self.is_unreaped()
    }

    /// Returns true if the child has ended. Does not reap it. True also if the status is lost.
    pub(crate) fn has_ended(&self) -> bool {
        let ended = self.lock();
        ended.is_some() || self.is_gone()
    }

    /// Returns a descriptor that polls readable once the child has ended. If a kqueue cannot be created,
    /// the caller has to poll [`has_ended`](Self::has_ended).
    pub(crate) fn pollable(&self) -> io::Result<BorrowedFd<'_>> {
        self.watch().map(ExitWatch::as_fd)
    }

    fn watch(&self) -> io::Result<&ExitWatch> {
        if self.watch.get().is_none() {
            let ended = self.lock();
            // Reaped: the number may belong to another process by now.
            let is_there = ended.is_none() && self.is_unreaped();
            let made = if is_there { ExitWatch::of(self.pid()) } else { ExitWatch::fired() };
            // Ignored: another thread was faster.
            let _ = self.watch.set(made?);
        }
        self.watch.get().ok_or_else(|| io::Error::from_raw_os_error(libc::ECHILD))
    }

    pub(super) fn refine_peak_memory(&self, usage: Usage) -> Usage {
        // The child's figure contains nothing of this process.
        usage
    }

    fn lock(&self) -> MutexGuard<'_, Option<Ended>> {
        // The state is one assignment: a panic elsewhere cannot have left it half-written.
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The target of a guard's kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GuardTarget {
    /// The child, by its number, until the guard is informed that the child has ended.
    Child,
    /// The group that the child leads. The guard is in it, so that the number of the group stays taken as
    /// long as there is a guard to kill it.
    Group,
}

/// This process's end of the pipe of a guard: a process that outlives this one, and kills a child, or a child's group,
/// when this process has ended. `start` makes it.
#[derive(Debug)]
pub(crate) struct Guard {
    /// The pipe; taken out when it has to stay open for ever.
    pipe: Option<OwnedFd>,
    target: GuardTarget,
    child_ended: AtomicBool,
}

impl Guard {
    /// Takes this process's end of the pipe of a guard that runs.
    pub(crate) fn new(pipe: OwnedFd, target: GuardTarget) -> Guard {
        Guard { pipe: Some(pipe), target, child_ended: AtomicBool::new(false) }
    }

    /// Informs the guard of a child that the child has ended and that its number is about to be free. Does
    /// nothing for a group, which may have other members.
    fn notify_ended(&self) {
        let Some(pipe) = self.pipe.as_ref().filter(|_| self.target == GuardTarget::Child) else {
            return;
        };
        if !self.child_ended.swap(true, Ordering::SeqCst) {
            // Ignored: another process has killed the guard. An empty pipe has room for a byte.
            let _ = rustix::io::write(pipe, b"\n");
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // A group ends with the handle of its child, as every contained tree does.
        if self.target == GuardTarget::Child && !self.child_ended.load(Ordering::SeqCst) {
            // A child whose handle is dropped continues to run, and still has to end with this process. So
            // the pipe stays open as long as this process lives.
            let _ = self.pipe.take().map(IntoRawFd::into_raw_fd);
        }
    }
}
