//! The kernel requests of the supervisor: raw system calls, and no memory but the stack. And the functions that the
//! compiler expects.

use core::arch::global_asm;
use core::mem::MaybeUninit;

use crate::nolibc::children::{self, check_child};
use crate::nolibc::message::MESSAGE_WORDS;
use crate::nolibc::{PollFd, call, number, poll};
use crate::sizes::RUSAGE_WORDS;

/// A number that no handle has.
pub const NO_FD: i32 = -1;

pub const HOST: i32 = 0;
const HOST_PIDFD: i32 = 1;
const GUARD_PIDFD: i32 = 2;
const CGROUP_KILL: i32 = 3;
pub const CGROUP_PARENT: i32 = 4;
pub const CHILDREN: i32 = 5;
pub const PLANS: i32 = 6;
pub const FIRST_FREE: usize = 7;

const SIGKILL: i32 = 9;
const SIGCHLD: i32 = 17;
const SIGCONT: i32 = 18;
const P_ALL: usize = 0;

// The kernel starts a program with a pointer only to its stack: the number of arguments, then the
// arguments.
#[cfg(target_arch = "x86_64")]
global_asm!(".globl _start", "_start:", "mov rdi, rsp", "and rsp, -16", "call {}", "ud2", sym start);
#[cfg(target_arch = "aarch64")]
global_asm!(".globl _start", "_start:", "mov x0, sp", "bl {}", "brk #1", sym start);
// The linker may make accesses relative to gp, which the program itself has to set, with an instruction
// that the linker does not relax to a gp-relative one.
#[cfg(target_arch = "riscv64")]
global_asm!(
    ".globl _start; _start:",
    ".option push; .option norelax; la gp, __global_pointer$; .option pop",
    "mv a0, sp; andi sp, sp, -16; call {}; ebreak",
    sym start
);

unsafe extern "C" fn start(stack: *const *const u8) -> ! {
    crate::run(&Arguments(stack))
}

/// The arguments of the program: the count, then that many strings, then NULL.
pub struct Arguments(*const *const u8);

impl Arguments {
    /// Returns the argument with that index, ended by NUL. Callers ask only for arguments that exist.
    pub fn text(&self, index: usize) -> *const u8 {
        // SAFETY: the only program that starts this one passes all of them.
        unsafe { *self.0.add(1 + index) }
    }

    pub fn first_letter(&self, index: usize) -> u8 {
        // SAFETY: a string has at least its NUL.
        unsafe { *self.text(index) }
    }

    pub fn number(&self, index: usize) -> i32 {
        let mut at = self.text(index);
        let mut number = 0;
        loop {
            // SAFETY: not past the NUL, which is not a digit.
            let byte = unsafe { *at };
            if !byte.is_ascii_digit() {
                return number;
            }
            number = number * 10 + i32::from(byte - b'0');
            // SAFETY: the NUL is still ahead.
            at = unsafe { at.add(1) };
        }
    }
}

/// Leaves the host's directory, so that this process does not keep a disk from being unmounted, and blocks
/// all signals but SIGKILL and SIGSTOP: signals sent to the host's group are not meant for this process.
pub fn leave_directory_and_block_signals() {
    const PR_SET_NAME: usize = 15;
    call(number::PRCTL, [PR_SET_NAME, c"pw-supervisor".as_ptr() as usize, 0, 0, 0, 0]);
    call(number::CHDIR, [c"/".as_ptr() as usize, 0, 0, 0, 0, 0]);
    let all = u64::MAX;
    call(number::RT_SIGPROCMASK, [2, &raw const all as usize, 0, 8, 0, 0]);
}

/// Leaves the host's session, and with it the host's group: kills and stops of the group do not reach this
/// process.
///
/// The supervisor has to stay in both. Outside the session, it would leave a group of the command's own
/// orphaned (setpgid(2)), and Ctrl-Z could not stop that group. Outside the group, it could be the last
/// process that ties a group to its session, if no other process does (a service's). With the command's end
/// the kernel would then send SIGHUP to that group, which is the host's, if a process in it is stopped at
/// that moment (`kill_orphaned_pgrp`).
pub fn leave_session() {
    call(number::SETSID, [0; 6]);
}

/// Creates a handle that becomes readable when a child has ended.
pub fn child_exit_signalfd() -> Option<i32> {
    let fd = open_signalfd();
    if fd < 0 {
        return None;
    }
    // Move it away from the fixed numbers, in case one of those was not passed.
    const F_DUPFD_CLOEXEC: usize = 1030;
    let moved = call(number::FCNTL, [fd as usize, F_DUPFD_CLOEXEC, FIRST_FREE, 0, 0, 0]);
    call(number::CLOSE, [fd as usize, 0, 0, 0, 0, 0]);
    (moved >= 0).then_some(moved as i32)
}

fn open_signalfd() -> isize {
    const CLOEXEC_NONBLOCK: usize = 0o2_004_000;
    let set: u64 = 1 << (SIGCHLD - 1);
    call(number::SIGNALFD4, [usize::MAX, &raw const set as usize, 8, CLOEXEC_NONBLOCK, 0, 0])
}

/// The result of [`reap`].
pub enum Reaped {
    /// The process id, then the status, user time and system time in microseconds, and peak memory in KiB.
    Ended(i32, [i64; 5]),
    /// The process has been stopped; it still exists and is not reaped.
    Stopped(i32),
    NoneReady,
    NoChildren,
}

/// Reaps a child that has ended.
pub fn reap() -> Reaped {
    const WNOHANG: usize = 1;
    const WUNTRACED: usize = 2;
    /// Also reaps children that `clone` made with a signal other than SIGCHLD, or with none.
    const WALL: usize = 0x4000_0000;
    let mut status = 0_i32;
    // User seconds, micros, system seconds, micros, peak, ..., voluntary switches, others.
    let mut usage = MaybeUninit::<[i64; RUSAGE_WORDS]>::uninit();
    let result = call(
        number::WAIT4,
        [
            usize::MAX,
            &raw mut status as usize,
            WNOHANG | WUNTRACED | WALL,
            usage.as_mut_ptr() as usize,
            0,
            0,
        ],
    );
    match result {
        0 => Reaped::NoneReady,
        // Packed as in wait(2).
        pid if pid > 0 && status & 0xff == 0x7f => Reaped::Stopped(pid as i32),
        pid if pid > 0 => {
            // SAFETY: the call has reported a process that has ended, and so has filled it in.
            let usage = unsafe { usage.assume_init() };
            let [user, user_micros, system, system_micros, peak_kib, .., given, taken] = usage;
            let micros = |seconds: i64, micros| seconds * 1_000_000 + micros;
            let times = [micros(user, user_micros), micros(system, system_micros)];
            let switches = given + taken;
            Reaped::Ended(pid as i32, [i64::from(status), times[0], times[1], peak_kib, switches])
        }
        _ => Reaped::NoChildren,
    }
}

/// Sends a message to the host, which may not be listening any more. If there is no room for it, sends it again until
/// there is: the host would wait for it for ever. A host that has ended the tree meanwhile leaves this process to the
/// guard.
pub fn send(message: &[i64; MESSAGE_WORDS]) {
    const MSG_DONTWAIT_NOSIGNAL: usize = 0x40 | 0x4000;
    const EAGAIN: isize = 11;
    const ENOMEM: isize = 12;
    const EPIPE: isize = 32;
    const ENOBUFS: isize = 105;
    const PAUSE_NANOS: i64 = 10_000_000;
    loop {
        let sent = call(
            number::SENDTO,
            [
                HOST as usize,
                message.as_ptr() as usize,
                size_of_val(message),
                MSG_DONTWAIT_NOSIGNAL,
                0,
                0,
            ],
        );
        if !matches!(-sent, EAGAIN | ENOMEM | ENOBUFS | EPIPE) || host_has_ended() {
            return;
        }
        pause(PAUSE_NANOS);
    }
}

/// Returns true if so few messages are unread that there is room for the end as well: the socket takes some
/// 200 KB, and the kernel counts about one KB for a message.
pub fn has_room_for_stops() -> bool {
    const MAX_UNREAD_BYTES: i32 = 32 << 10;
    const SIOCOUTQ: usize = 0x5411;
    let mut unread = 0_i32;
    let place = &raw mut unread as usize;
    call(number::IOCTL, [HOST as usize, SIOCOUTQ, place, 0, 0, 0]) == 0 && unread < MAX_UNREAD_BYTES
}

/// The poll(2) event of a handle that is readable or at its end.
pub const READABLE: i16 = 1;
/// The poll(2) event of a socket whose other end sends nothing any more.
pub const AT_END: i16 = 0x2000;

/// The handles to poll while no process has to be killed.
pub struct PollSet([PollFd; 4]);

impl PollSet {
    /// Waits for these events of the host's socket. A guard that waited for requests would take each for the end.
    pub fn new(exits: i32, host_events: i16) -> PollSet {
        const NOT_OPEN: i16 = 0x20;
        let mut polled = [exits, HOST, HOST_PIDFD, GUARD_PIDFD].map(|fd| PollFd {
            fd,
            events: READABLE,
            revents: 0,
        });
        polled[1].events = host_events;
        poll(&mut polled, Some(0));
        for polled in &mut polled {
            if polled.revents & NOT_OPEN != 0 {
                // It was not passed; poll would report that forever.
                polled.fd = NO_FD;
            }
        }
        PollSet(polled)
    }

    /// Waits for the end of a child, of the host or of the guard. Returns true if the tree has to end.
    pub fn wait(&mut self) -> bool {
        let Woken { by_host, must_end } = self.wait_for_requests();
        by_host || must_end
    }

    /// Waits for the same, or for a request of the host.
    pub fn wait_for_requests(&mut self) -> Woken {
        if poll(&mut self.0, None) < 0 {
            // Nothing is known: the caller looks at its children, and waits again.
            return Woken { by_host: false, must_end: false };
        }
        let [exits, host, host_pidfd, guard_pidfd] = &self.0;
        if exits.revents != 0 {
            drain(exits.fd);
        }
        Woken {
            by_host: host.revents != 0,
            must_end: (host_pidfd.revents | guard_pidfd.revents) != 0,
        }
    }
}

/// The reason why [`PollSet::wait_for_requests`] has returned.
pub struct Woken {
    /// The host has sent something, or has closed its end.
    pub by_host: bool,
    /// The host or the guard has ended.
    pub must_end: bool,
}

/// Waits for the end of a child, at most for that time.
pub fn wait_for_children(exits: i32, nanos: i64) {
    poll(&mut [PollFd { fd: exits, events: READABLE, revents: 0 }], Some(nanos));
    drain(exits);
}

/// Reads the notifications of ended children, which the caller reaps next.
fn drain(exits: i32) {
    let mut taken = MaybeUninit::<[u64; 16]>::uninit();
    call(number::READ, [exits as usize, taken.as_mut_ptr() as usize, 128, 0, 0, 0]);
}

pub fn pause(nanos: i64) {
    poll(&mut [], Some(nanos));
}

pub fn kill(pid: i32) {
    call(number::KILL, [pid as usize, SIGKILL as usize, 0, 0, 0, 0]);
}

pub fn resume(pid: i32) {
    call(number::KILL, [pid as usize, SIGCONT as usize, 0, 0, 0, 0]);
}

/// Kills every child.
pub fn kill_children() {
    children::kill_children(CHILDREN);
}

/// Returns true if the supervisor waits for proof that this program works. The proof is written under the
/// number that for the supervisor is the guard's.
pub fn must_prove() -> bool {
    const F_GETFD: usize = 1;
    call(number::FCNTL, [GUARD_PIDFD as usize, F_GETFD, 0, 0, 0, 0]) >= 0
}

/// Reports that this program works.
pub fn prove() {
    let one = 1_u64;
    call(number::WRITE, [GUARD_PIDFD as usize, &raw const one as usize, 8, 0, 0, 0]);
    call(number::CLOSE, [GUARD_PIDFD as usize, 0, 0, 0, 0, 0]);
}

/// Returns 0 if this machine allows all calls that supervising takes, or the number of an error. A sandbox that refuses
/// one of them would cause the tree to be killed at once, let it escape, or make this program loop forever.
///
/// No child of this process has ended yet.
pub fn can_work() -> usize {
    const EPERM: usize = 1;
    let failed = first_failure();
    if failed < 0 {
        // Its number is not remembered as a refusal if it says that there is no room.
        return failed.unsigned_abs();
    }
    match open_signalfd() {
        failed @ ..0 => failed.unsigned_abs(),
        fd if close(fd as i32) => 0,
        _ => EPERM,
    }
}

/// Returns the first error of the calls that supervising takes, or 0.
fn first_failure() -> isize {
    const PR_GET_CHILD_SUBREAPER: usize = 37;
    const EPERM: isize = 1;
    const ECHILD: isize = 10;
    const EBADF: isize = 9;
    let unless = |expected: isize, result: isize| if result == -expected { 0 } else { result };
    let mut is_subreaper = 0_i32;
    let mut status = 0_i32;
    let pid = call(number::GETPID, [0; 6]) as usize;
    let place = &raw mut is_subreaper as usize;
    call(number::PRCTL, [PR_GET_CHILD_SUBREAPER, place, 0, 0, 0, 0]);
    let status = &raw mut status as usize;
    let results = [
        if is_subreaper == 1 { 0 } else { -EPERM },
        unless(ECHILD, call(number::WAIT4, [usize::MAX, status, 1, 0, 0, 0])),
        unless(ECHILD, check_child(P_ALL, 0)),
        call(number::KILL, [pid, 0, 0, 0, 0, 0]),
        call(number::LSEEK, [CHILDREN as usize, 0, 0, 0, 0, 0]),
        call(number::READ, [CHILDREN as usize, status, 1, 0, 0, 0]),
        poll(&mut [], Some(0)),
        unless(EBADF, call(number::SENDTO, [usize::MAX, 0, 0, 0, 0, 0])),
    ];
    results.into_iter().find(|result| *result < 0).unwrap_or(0)
}

fn close(fd: i32) -> bool {
    call(number::CLOSE, [fd as usize, 0, 0, 0, 0, 0]) == 0
}

/// Kills every process in the cgroup at once. Without a cgroup the handle is not open.
pub fn kill_cgroup() {
    call(number::WRITE, [CGROUP_KILL as usize, b"1".as_ptr() as usize, 1, 0, 0, 0]);
}

/// Returns true if the host has ended, or holds this tree no more.
pub fn host_has_ended() -> bool {
    poll_end_of_host(Some(0))
}

/// Returns true if the host has sent the message that announces the request for the end of the tree. It stays there.
pub fn end_is_requested() -> bool {
    const FIONREAD: usize = 0x541B;
    let mut unread = 0_i32;
    let place = &raw mut unread as usize;
    call(number::IOCTL, [HOST as usize, FIONREAD, place, 0, 0, 0]) == 0 && unread > 0
}

/// Returns true if the process of the host has ended. False without a pidfd of it.
pub fn host_process_has_ended() -> bool {
    let mut host = [PollFd { fd: HOST_PIDFD, events: READABLE, revents: 0 }];
    poll(&mut host, Some(0));
    host[0].revents & READABLE != 0
}

/// Waits until the host has ended, or holds this tree no more.
pub fn wait_for_end_of_host() {
    while !poll_end_of_host(None) {}
}

fn poll_end_of_host(nanos: Option<i64>) -> bool {
    // An ended process closes its handles before its pidfd says so. A request to end the tree closes only one
    // direction.
    const CLOSED: i16 = 0x10;
    let mut host =
        [(HOST_PIDFD, READABLE), (HOST, 0)].map(|(fd, events)| PollFd { fd, events, revents: 0 });
    poll(&mut host, nanos);
    host[0].revents & READABLE != 0 || host[1].revents & CLOSED != 0
}

/// Exits. A status other than 0 says that this machine does not allow the work.
pub fn exit(status: usize) -> ! {
    loop {
        call(number::EXIT_GROUP, [status, 0, 0, 0, 0, 0]);
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    exit(0)
}

// The functions of the C library that the compiler calls by itself, to copy, fill and compare structures. The target
// and the version of the compiler decide where it calls one. The linker leaves out those that nothing calls.

/// # Safety
/// As memcpy(3): both are valid for that many bytes, and do not overlap.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
    // SAFETY: the caller promises more.
    unsafe { memmove(to, from, bytes) }
}

/// # Safety
/// As memmove(3): both are valid for that many bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
    // In the order in which no byte is overwritten before it is read.
    let is_forward = to.addr() <= from.addr();
    for at in 0..bytes {
        let at = if is_forward { at } else { bytes - 1 - at };
        // SAFETY: both are valid for more bytes than this.
        unsafe { to.add(at).write(from.add(at).read()) };
    }
    to
}

/// # Safety
/// As memset(3): valid for that many bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, bytes: usize) -> *mut u8 {
    for at in 0..bytes {
        // SAFETY: it is valid for more bytes than this.
        unsafe { to.add(at).write(byte as u8) };
    }
    to
}

/// # Safety
/// As memcmp(3): both are valid for that many bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(left: *const u8, right: *const u8, bytes: usize) -> i32 {
    for at in 0..bytes {
        // SAFETY: both are valid for more bytes than this.
        let (left, right) = unsafe { (left.add(at).read(), right.add(at).read()) };
        if left != right {
            return i32::from(left) - i32::from(right);
        }
    }
    0
}

/// # Safety
/// As memcmp(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(left: *const u8, right: *const u8, bytes: usize) -> i32 {
    // SAFETY: the same is required of the caller.
    unsafe { memcmp(left, right, bytes) }
}
