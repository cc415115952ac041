//! Starts a child below a supervisor: host, guard, supervisor, child.
//!
//! The guard and the supervisor are made as the child is: they run in our memory until they execute
//! the program in `contain/linux/image.rs`. So the child has everything from us that it would have
//! had without them, a large process is not copied, and nothing has to be installed. Only the
//! parent of the child is another.
//!
//! We wait for no more than the child: the supervisor becomes the program when it has told us of
//! the child, and the guard after it. So both run beside us, on stacks that are not used again
//! before they are off them, and by system calls that leave `errno` alone (`bare.rs`): that one
//! belongs to the thread of ours that waits.
//!
//! The first start of a process finds out whether this machine lets the program run and do its work:
//! there the guard becomes it first, and the supervisor starts nothing before that has said so.

use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::mem;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};

use super::child::Job;
use super::clone::{self, Twin};
use super::digits::Digits;
use super::stack::Stack;
use super::{SpawnError, Step, bare, failure, own_pidfd};
use crate::base::signal::AllBlocked;
use crate::process::child::{ChildHandle, linux as exit};
use crate::process::contain::linux::Supervisor;
use crate::process::contain::linux::cgroup::Cgroup;
use crate::process::contain::linux::image::{self, image};
use crate::process::contain::linux::report::{NotStarted, Reports, Started};
use crate::process::member::Member;
use crate::process::pidfd::send;
use rustix::process::{PidfdFlags, Resource, getpid, getrlimit, pidfd_open};

/// A child below a supervisor: its number, a handle on it, and those who hold it.
pub(super) struct Held {
    pub(super) pid: i32,
    pub(super) pidfd: Option<OwnedFd>,
    pub(super) supervisor: Supervisor,
}

/// What the two processes need. They copy the program before they let anybody else go on.
struct Chain<'a> {
    job: &'a Job<'a>,
    /// For the supervisor and for the child.
    stacks: [&'a Stack; 2],
    program: Program,
    /// A pidfd of the guard, once that runs.
    guard_end: AtomicI32,
    /// Where the program has not been seen to work yet: what the guard says by that it does.
    proof: AtomicI32,
    /// Nothing is started before.
    is_proven: AtomicBool,
}

/// How many handles the program is given, under the numbers from 0 on (`supervisor/main.rs`).
const HANDLES: usize = 6;
const NONE: RawFd = -1;
const HOST: usize = 0;
const GUARD_END: usize = 2;
/// The guard has none above it: there it is what the proof is written to.
const PROOF: usize = GUARD_END;
const CHILDREN: usize = 5;

/// The program that both become.
#[derive(Clone, Copy)]
pub(super) struct Program {
    image: RawFd,
    /// [`NONE`] for what there is not.
    handles: [RawFd; HANDLES],
    cgroup: [u8; NAME_BYTES],
}

/// Room for the name of a cgroup, with its NUL.
const NAME_BYTES: usize = 48;

pub(super) fn start(job: &Job<'_>, cgroup: Option<&Cgroup>) -> Result<Held, SpawnError> {
    let create_error = |error| SpawnError::new(Step::Create, error);
    let image = image().map_err(|error| SpawnError::new(Step::Contain, error))?;
    check_room().map_err(create_error)?;
    let [for_guard, for_supervisor, for_child] = [take_stack()?, take_stack()?, take_stack()?];
    let is_proven = image::is_proven();
    let (reports, theirs, our_end) = do_our_part(!is_proven).map_err(|error| {
        if is_proven || is_want_of_room(&error) { create_error(error) } else { refuse() }
    })?;
    let chain = Chain {
        job,
        stacks: [&for_supervisor, &for_child],
        program: Program::new(image, theirs.as_fd(), our_end.as_fd(), cgroup),
        guard_end: AtomicI32::new(NONE),
        proof: AtomicI32::new(NONE),
        is_proven: AtomicBool::new(is_proven),
    };
    // Until the child is there: a handler that ran on this thread would share its `errno`.
    let _blocked = AllBlocked::new();
    let mut guard_pidfd = NONE;
    let twin = chain.twin(&for_guard, guard, Some(&raw mut guard_pidfd));
    // SAFETY: the stack is in use by nobody else and is not used again before it is left; it and
    // the chain stay here until the child is there, which is after the guard has begun and has
    // read the chain for the last time. `guard` never returns.
    let born = unsafe { clone::without_waiting(&twin) };
    let guard_pidfd = own_pidfd(guard_pidfd);
    // Its end is to be seen: only they and the child hold it now, and the child until it execs.
    drop(theirs);
    // And room for the two that come: where there was room to begin, there is room to the end.
    drop(our_end);
    let guard = match born {
        Ok(guard) => guard,
        Err(error) if is_want_of_room(&error) => return Err(create_error(error)),
        // It is not about the command, so something else may hold it.
        Err(error) => return Err(cannot_hold(error)),
    };
    let started = reports.started();
    let again = guard_pidfd.as_ref().map(OwnedFd::try_clone).transpose();
    let guard_exit = ChildHandle(exit::ChildHandle::new(guard, guard_pidfd));
    let failed = match (failure(job), started) {
        (Some(failed), _) => failed,
        (None, Err(NotStarted::Held(error))) if !is_want_of_room(&error) => cannot_hold(error),
        (None, Err(NotStarted::Held(error) | NotStarted::Command(error))) => create_error(error),
        // Signals would go by a number that the supervisor may have freed.
        (None, Ok(Started { pidfd: None, .. })) => {
            create_error(io::Error::from_raw_os_error(libc::EMFILE))
        }
        (None, Ok(Started { pid, pidfd, supervisor })) => match again {
            Ok(Some(guard_pidfd)) => {
                let guard = Member::new(guard as u32, guard_pidfd);
                let reports = Arc::new(reports);
                let supervisor = Supervisor { reports, supervisor, guard, guard_exit };
                image::prove();
                return Ok(Held { pid, pidfd, supervisor });
            }
            Ok(None) => create_error(io::ErrorKind::Unsupported.into()),
            Err(error) => create_error(error),
        },
    };
    // The supervisor has ended, or is told to (a fork of this process may hold a copy, so a drop
    // would not do); the guard ends last. Ignored: somebody else has reaped it.
    reports.let_go();
    let guard_status = guard_exit.wait().map(|ended| ended.status);
    if chain.is_proven.load(Relaxed) || is_want_of_room(&failed.source) {
        return Err(failed);
    }
    match guard_status {
        // Somebody has killed the one or the other, which says nothing of this machine.
        Ok(status) if status.success() || status.signal() == Some(libc::SIGKILL) => Err(failed),
        _ => Err(refuse()),
    }
}

/// A socket for reports, the end of it for the supervisor, and a pidfd of this process. With `tries`
/// also whether this machine lets us do what we do ourselves while we hold a tree: a sandbox answers a
/// call before anybody looks at what it is about.
fn do_our_part(tries: bool) -> io::Result<(Reports, OwnedFd, OwnedFd)> {
    let (reports, theirs) = Reports::pair()?;
    let our_end = pidfd_open(getpid(), PidfdFlags::empty())?;
    if tries {
        send(our_end.as_fd(), 0, 0)?;
        Reports::can_be_used(our_end.as_fd())?;
    }
    Ok((reports, theirs, our_end))
}

/// No tree can be supervised here.
fn refuse() -> SpawnError {
    SpawnError::new(Step::Contain, image::refuse())
}

/// This tree cannot be supervised. The error has no number, which would be about a cgroup.
fn cannot_hold(error: io::Error) -> SpawnError {
    SpawnError::new(Step::Contain, io::Error::other(error))
}

fn is_want_of_room(error: &io::Error) -> bool {
    let rooms = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EAGAIN, libc::ETOOMANYREFS];
    error.raw_os_error().is_some_and(|errno| rooms.contains(&errno))
}

/// Neither of the two may run out of numbers when it arranges its handles: by then the command
/// runs, and nobody tells the host why it is killed.
///
/// # Errors
/// `EMFILE`: a number that they need may be above `RLIMIT_NOFILE`.
fn check_room() -> io::Result<()> {
    // What is kept is lifted above all places; at worst everything kept is there already.
    const NUMBERS: u64 = (HANDLES + 2 * (HANDLES + 1)) as u64;
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < NUMBERS => Err(io::Error::from_raw_os_error(libc::EMFILE)),
        _ => Ok(()),
    }
}

fn take_stack() -> Result<Stack, SpawnError> {
    Stack::take().map_err(|error| SpawnError::new(Step::Create, error))
}

impl Chain<'_> {
    fn twin<'a>(
        &'a self,
        stack: &'a Stack,
        entry: clone::Entry,
        pidfd: Option<*mut c_int>,
    ) -> Twin<'a> {
        Twin {
            stack,
            cgroup: None,
            after_clone3: entry,
            after_clone: entry,
            argument: ptr::from_ref(self).cast_mut().cast(),
            pidfd,
        }
    }
}

/// The guard's life until it becomes the program.
extern "C" fn guard(argument: *mut c_void) -> c_int {
    // SAFETY: the host keeps the chain where it is until the child is there.
    let chain = unsafe { &*argument.cast_const().cast::<Chain<'_>>() };
    let mut program = chain.program;
    bare::become_subreaper();
    // The supervisor has it from here; what the command is to find is what we found.
    chain.job.ignores_children.store(bare::keep_ended_children(), Relaxed);
    match start_supervisor(chain, &mut program) {
        Ok(pid) => {
            program.become_it(c"guard", pid);
            // It cannot be guarded, so it must not be.
            if !bare::kill(pid) {
                // It may wait for a proof, and so for our end.
                bare::exit()
            }
        }
        Err(errno) => program.fail(errno),
    }
    bare::reap_all();
    bare::exit()
}

/// From here on the chain is the supervisor's.
fn start_supervisor(chain: &Chain<'_>, program: &mut Program) -> Result<i32, i32> {
    chain.guard_end.store(bare::open_own_end()?, Relaxed);
    let [stack, _] = chain.stacks;
    let twin = chain.twin(stack, supervisor, None);
    if !chain.is_proven.load(Relaxed) {
        bare::try_to_send()?;
        program.handles[PROOF] = bare::open_flag()?;
        chain.proof.store(program.handles[PROOF], Relaxed);
        // Not after it: it waits for what the guard is to find out.
        // SAFETY: as in `start`.
        let born = unsafe { clone::without_waiting(&twin) };
        return born.map_err(|error| errno_of(&error));
    }
    // Until the supervisor is off our memory: on few processors the guard would otherwise load its
    // program where the supervisor is to start the command.
    // SAFETY: as in `start`.
    let born = unsafe { clone::vfork_unattended(&twin) };
    born.map_err(|error| errno_of(&error))
}

/// The supervisor's life until it becomes the program.
extern "C" fn supervisor(argument: *mut c_void) -> c_int {
    // SAFETY: as in `guard`.
    let chain = unsafe { &*argument.cast_const().cast::<Chain<'_>>() };
    let mut program = chain.program;
    program.handles[GUARD_END] = chain.guard_end.load(Relaxed);
    match start_command(chain, &mut program) {
        // From here on the chain is gone.
        Ok(Some(pid)) => {
            bare::let_others_run();
            program.become_it(c"supervisor", pid);
            bare::kill(pid);
        }
        // It has failed by itself, and told.
        Ok(None) => {}
        Err(errno) => program.fail(errno),
    }
    bare::reap_all();
    bare::exit()
}

/// The number of the command that runs, once the host knows of it.
fn start_command(chain: &Chain<'_>, program: &mut Program) -> Result<Option<i32>, i32> {
    // Before the command is there: it may lose children in its first moment, and may do to `/proc`
    // what it likes.
    bare::become_subreaper();
    program.handles[CHILDREN] = bare::open_children()?;
    if !chain.is_proven.load(Relaxed) {
        wait_for_proof(chain)?;
    }
    let [_, stack] = chain.stacks;
    let (pid, pidfd) = match clone::create(chain.job, stack) {
        Ok(created) => created,
        Err(error) => return program.tell(0, None, errno_of(&error)).map(|()| None),
    };
    let failed = chain.job.errno.load(Relaxed);
    let told = program.tell(pid, pidfd.as_ref(), failed);
    // Closed by the exec; closing it here would go through the C library.
    mem::forget(pidfd);
    if told.is_err() {
        bare::kill(pid);
    }
    told.map(|()| (failed == 0).then_some(pid))
}

/// Waits until the guard has found out that the program works here.
fn wait_for_proof(chain: &Chain<'_>) -> Result<(), i32> {
    let [proof, guard_end] = [&chain.proof, &chain.guard_end].map(|fd| fd.load(Relaxed));
    if !bare::wait_for_flag(proof, guard_end) {
        return Err(libc::EPERM);
    }
    chain.is_proven.store(true, Relaxed);
    Ok(())
}

fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

impl Program {
    fn new(
        image: BorrowedFd<'_>,
        host: BorrowedFd<'_>,
        host_end: BorrowedFd<'_>,
        cgroup: Option<&Cgroup>,
    ) -> Program {
        let number = |fd: Option<BorrowedFd<'_>>| fd.map_or(NONE, |fd| fd.as_raw_fd());
        let mut name = [0; NAME_BYTES];
        let bytes = cgroup.map_or(&[][..], |cgroup| cgroup.name().to_bytes());
        for (place, byte) in name.iter_mut().zip(bytes).take(NAME_BYTES - 1) {
            *place = *byte;
        }
        Program {
            image: image.as_raw_fd(),
            handles: [
                host.as_raw_fd(),
                host_end.as_raw_fd(),
                NONE,
                number(cgroup.and_then(Cgroup::kill_file)),
                number(cgroup.map(Cgroup::parent)),
                NONE,
            ],
            cgroup: name,
        }
    }

    /// With nobody to look after.
    pub(super) fn alone(image: BorrowedFd<'_>, host: BorrowedFd<'_>) -> Program {
        let mut handles = [NONE; HANDLES];
        handles[HOST] = host.as_raw_fd();
        Program { image: image.as_raw_fd(), handles, cgroup: [0; NAME_BYTES] }
    }

    /// Tells the host how the start of the command went.
    pub(super) fn tell(&self, pid: i32, pidfd: Option<&OwnedFd>, errno: i32) -> Result<(), i32> {
        let words = Started::words(pid, bare::own_pid(), errno);
        bare::send(self.handles[HOST], &words, pidfd.map(|fd| fd.as_raw_fd()))
    }

    /// Tells the host why nobody can hold a command.
    fn fail(&self, errno: i32) {
        // Ignored: the end of this process tells as much, but not why.
        let _ = bare::send(self.handles[HOST], &NotStarted::words(errno), None);
    }

    /// Returns only if that fails.
    pub(super) fn become_it(&self, role: &CStr, subject: i32) {
        bare::close_all_but(self.image, &self.handles);
        let mut handles = self.handles;
        if handles[CHILDREN] == NONE {
            let Ok(children) = bare::open_children() else { return };
            handles[CHILDREN] = children;
        }
        let subject = Digits::of(subject);
        let cgroup = CStr::from_bytes_until_nul(&self.cgroup).unwrap_or(c"");
        let arguments = [c"pipewright-supervisor", role, subject.as_c_str(), cgroup];
        bare::become_image(self.image, &handles, arguments);
    }
}
