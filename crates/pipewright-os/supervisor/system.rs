//! What the supervisor asks of the kernel: bare system calls, no memory but its stack.

use core::arch::global_asm;
use core::mem::MaybeUninit;
use core::slice;

use crate::call::call;
use crate::sizes::RUSAGE_WORDS;

/// The number of no handle.
pub const NOTHING: i32 = -1;

const HOST: i32 = 0;
const HOST_END: i32 = 1;
const GUARD_END: i32 = 2;
const CGROUP_KILL: i32 = 3;
const CGROUP_PARENT: i32 = 4;
const CHILDREN: i32 = 5;
const FIRST_FREE: usize = 6;

const SIGKILL: i32 = 9;
const SIGCHLD: i32 = 17;
const SIGCONT: i32 = 18;

#[cfg(target_arch = "x86_64")]
mod number {
    pub const READ: usize = 0;
    pub const WRITE: usize = 1;
    pub const CLOSE: usize = 3;
    pub const LSEEK: usize = 8;
    pub const IOCTL: usize = 16;
    pub const GETPID: usize = 39;
    pub const SENDTO: usize = 44;
    pub const WAIT4: usize = 61;
    pub const KILL: usize = 62;
    pub const FCNTL: usize = 72;
    pub const CHDIR: usize = 80;
    pub const SETSID: usize = 112;
    pub const PRCTL: usize = 157;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const EXIT_GROUP: usize = 231;
    pub const WAITID: usize = 247;
    pub const UNLINKAT: usize = 263;
    pub const PPOLL: usize = 271;
    pub const SIGNALFD4: usize = 289;
}

#[cfg(any(target_arch = "aarch64", target_arch = "riscv64"))]
mod number {
    pub const READ: usize = 63;
    pub const WRITE: usize = 64;
    pub const CLOSE: usize = 57;
    pub const LSEEK: usize = 62;
    pub const IOCTL: usize = 29;
    pub const GETPID: usize = 172;
    pub const SENDTO: usize = 206;
    pub const WAIT4: usize = 260;
    pub const KILL: usize = 129;
    pub const FCNTL: usize = 25;
    pub const CHDIR: usize = 49;
    pub const SETSID: usize = 157;
    pub const PRCTL: usize = 167;
    pub const RT_SIGPROCMASK: usize = 135;
    pub const EXIT_GROUP: usize = 94;
    pub const WAITID: usize = 95;
    pub const UNLINKAT: usize = 35;
    pub const PPOLL: usize = 73;
    pub const SIGNALFD4: usize = 74;
}

// The kernel starts a program with a pointer to nothing but its stack: the number of arguments,
// then the arguments.
#[cfg(target_arch = "x86_64")]
global_asm!(".globl _start", "_start:", "mov rdi, rsp", "and rsp, -16", "call {}", "ud2", sym start);
#[cfg(target_arch = "aarch64")]
global_asm!(".globl _start", "_start:", "mov x0, sp", "bl {}", "brk #1", sym start);
// The linker may make accesses relative to gp, which nobody but the program itself sets: by an
// instruction that is not made so in turn.
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

/// What the program was started with: the count, then that many strings, then NULL.
pub struct Arguments(*const *const u8);

impl Arguments {
    /// The argument of that number, ended by NUL. Only asked for those that are there.
    pub fn text(&self, index: usize) -> *const u8 {
        // SAFETY: the one program that starts this one gives all four.
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
            // SAFETY: not past the NUL, which is no digit.
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

/// Leaves the host's directory: our being there must not keep a disk from being unmounted. And no signal but
/// SIGKILL and SIGSTOP gets through: what is sent to the host's group is not for us.
pub fn become_quiet() {
    const PR_SET_NAME: usize = 15;
    call(number::PRCTL, [PR_SET_NAME, c"pw-supervisor".as_ptr() as usize, 0, 0, 0, 0]);
    call(number::CHDIR, [c"/".as_ptr() as usize, 0, 0, 0, 0, 0]);
    let all = u64::MAX;
    call(number::RT_SIGPROCMASK, [2, &raw const all as usize, 0, 8, 0, 0]);
}

/// Leaves the host's session, and so its group: who kills or stops that does not reach us.
///
/// The supervisor has to stay in both. Outside the session, it would leave a group of the command's own orphaned
/// (setpgid(2)), and Ctrl-Z could not stop that. Outside the group, it would be the last who ties a group to the
/// session that nobody else ties to it (a service's), so with the command's end the kernel would send SIGHUP to that
/// group, if somebody in it is stopped at that moment (`kill_orphaned_pgrp`): to the host.
pub fn leave_session() {
    call(number::SETSID, [0; 6]);
}

/// A handle that can be read when a child has ended.
pub fn ends_of_children() -> Option<i32> {
    const CLOEXEC_NONBLOCK: usize = 0o2_004_000;
    let set: u64 = 1 << (SIGCHLD - 1);
    let fd =
        call(number::SIGNALFD4, [usize::MAX, &raw const set as usize, 8, CLOEXEC_NONBLOCK, 0, 0]);
    if fd < 0 {
        return None;
    }
    // Away from the numbers that have a meaning here, where nothing was handed over.
    const F_DUPFD_CLOEXEC: usize = 1030;
    let moved = call(number::FCNTL, [fd as usize, F_DUPFD_CLOEXEC, FIRST_FREE, 0, 0, 0]);
    call(number::CLOSE, [fd as usize, 0, 0, 0, 0, 0]);
    (moved >= 0).then_some(moved as i32)
}

/// What [`reap`] found.
pub enum Reaped {
    /// Who, and: the status, user time, system time in microseconds, peak memory in KiB.
    One(i32, [i64; 4]),
    /// Not reaped: it has been stopped, and is there.
    Stopped(i32),
    NobodyYet,
    NobodyLeft,
}

/// Reaps a child that has ended.
pub fn reap() -> Reaped {
    const WNOHANG: usize = 1;
    const WUNTRACED: usize = 2;
    /// Also what `clone` made with another signal than SIGCHLD, or with none.
    const WALL: usize = 0x4000_0000;
    let mut status = 0_i32;
    // User seconds, micros, system seconds, micros, peak, ...
    // Not zeroed: on riscv64 that is a call of `memset`, which nobody has here.
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
        0 => Reaped::NobodyYet,
        // As wait(2) packs it.
        pid if pid > 0 && status & 0xff == 0x7f => Reaped::Stopped(pid as i32),
        pid if pid > 0 => {
            // SAFETY: the call has told of a process that has ended, and so has filled it in.
            let usage = unsafe { usage.assume_init() };
            let [user, user_micros, system, system_micros, peak_kib, ..] = usage;
            let micros = |seconds: i64, micros| seconds * 1_000_000 + micros;
            let times = [micros(user, user_micros), micros(system, system_micros)];
            Reaped::One(pid as i32, [i64::from(status), times[0], times[1], peak_kib])
        }
        _ => Reaped::NobodyLeft,
    }
}

/// Tells the host. Nobody may be listening any more.
pub fn send(message: &[i64; 6]) {
    const MSG_DONTWAIT_NOSIGNAL: usize = 0x40 | 0x4000;
    call(
        number::SENDTO,
        [HOST as usize, message.as_ptr() as usize, 48, MSG_DONTWAIT_NOSIGNAL, 0, 0],
    );
}

/// Whether so little of what was sent is unread that there is room for the end as well: the socket
/// takes some 200 KB, and the kernel counts about one for a message.
pub fn little_is_unread() -> bool {
    const LITTLE_BYTES: i32 = 32 << 10;
    const SIOCOUTQ: usize = 0x5411;
    let mut unread = 0_i32;
    let place = &raw mut unread as usize;
    call(number::IOCTL, [HOST as usize, SIOCOUTQ, place, 0, 0, 0]) == 0 && unread < LITTLE_BYTES
}

#[repr(C)]
struct Polled {
    fd: i32,
    events: i16,
    found: i16,
}

/// poll(2): waits for it to be readable, as it also is at its end.
const READABLE: i16 = 1;

fn poll(polled: &mut [Polled], nanos: Option<i64>) -> bool {
    let time = [0, nanos.unwrap_or(0)];
    let time = if nanos.is_some() { time.as_ptr() as usize } else { 0 };
    call(number::PPOLL, [polled.as_mut_ptr() as usize, polled.len(), time, 0, 8, 0]) >= 0
}

/// What is waited for while nobody has to be killed.
pub struct Watch([Polled; 4]);

impl Watch {
    pub fn new(ends: i32) -> Watch {
        const NOT_OPEN: i16 = 0x20;
        let mut polled =
            [ends, HOST, HOST_END, GUARD_END].map(|fd| Polled { fd, events: READABLE, found: 0 });
        poll(&mut polled, Some(0));
        for polled in &mut polled {
            if polled.found & NOT_OPEN != 0 {
                // Was not handed over; poll would tell so for ever.
                polled.fd = NOTHING;
            }
        }
        Watch(polled)
    }

    /// Waits for the end of a child, of the host or of the guard. `true`: the tree is to end.
    pub fn wait(&mut self) -> bool {
        poll(&mut self.0, None);
        let [ends, host, host_end, guard_end] = &self.0;
        forget(ends.fd);
        (host.found | host_end.found | guard_end.found) != 0
    }
}

/// Waits for the end of a child, for a while.
pub fn wait_for_children(ends: i32, nanos: i64) {
    poll(&mut [Polled { fd: ends, events: READABLE, found: 0 }], Some(nanos));
    forget(ends);
}

/// Takes the word that children have ended; they are reaped next.
fn forget(ends: i32) {
    let mut taken = MaybeUninit::<[u64; 16]>::uninit();
    call(number::READ, [ends as usize, taken.as_mut_ptr() as usize, 128, 0, 0, 0]);
}

pub fn pause(nanos: i64) {
    poll(&mut [], Some(nanos));
}

pub fn kill(pid: i32) {
    call(number::KILL, [pid as usize, SIGKILL as usize, 0, 0, 0, 0]);
}

pub fn wake(pid: i32) {
    call(number::KILL, [pid as usize, SIGCONT as usize, 0, 0, 0, 0]);
}

/// Kills every child: those are ours to reap, so each number is still that child's.
pub fn kill_children() {
    call(number::LSEEK, [CHILDREN as usize, 0, 0, 0, 0, 0]);
    let mut buffer = MaybeUninit::<[u8; 4096]>::uninit();
    let place = buffer.as_mut_ptr() as usize;
    let mut pid = 0;
    loop {
        let count = call(number::READ, [CHILDREN as usize, place, 4096, 0, 0, 0]);
        if count <= 0 {
            return;
        }
        // SAFETY: the kernel has just written that many bytes to it.
        let text = unsafe { slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), count as usize) };
        // Numbers, each followed by a space; one may be split over two reads.
        for byte in text {
            if byte.is_ascii_digit() {
                pid = pid * 10 + i32::from(byte - b'0');
            } else if pid > 0 {
                // The numbers are those of the pid namespace that `/proc` is of.
                if find_child(P_PID, pid) == 0 {
                    kill(pid);
                }
                pid = 0;
            }
        }
    }
}

const P_ALL: usize = 0;
const P_PID: usize = 1;

/// 0: it is a child of ours, whether it has ended or not; it is left as it is.
fn find_child(kind: usize, pid: i32) -> isize {
    const WNOHANG_WEXITED_WNOWAIT_WALL: usize = 0x1 | 0x4 | 0x0100_0000 | 0x4000_0000;
    call(number::WAITID, [kind, pid as usize, 0, WNOHANG_WEXITED_WNOWAIT_WALL, 0, 0])
}

/// Whether somebody waits for us to prove that we work: that is written under the number that for the
/// supervisor is the guard's.
pub fn is_on_proof() -> bool {
    const F_GETFD: usize = 1;
    call(number::FCNTL, [GUARD_END as usize, F_GETFD, 0, 0, 0, 0]) >= 0
}

/// Says that we do.
pub fn prove() {
    let one = 1_u64;
    call(number::WRITE, [GUARD_END as usize, &raw const one as usize, 8, 0, 0, 0]);
    call(number::CLOSE, [GUARD_END as usize, 0, 0, 0, 0, 0]);
}

/// Whether this machine lets us do what all of this takes. A sandbox that refuses one of the calls
/// would have the tree killed at once, or let it get away, or have us turn round for ever.
///
/// Nobody that we have as a child has ended yet.
pub fn can_work() -> bool {
    const PR_GET_CHILD_SUBREAPER: usize = 37;
    const ECHILD: isize = 10;
    const EBADF: isize = 9;
    let works = |result: isize| result == 0 || result == -ECHILD;
    let mut adopts = 0_i32;
    let mut status = 0_i32;
    let pid = call(number::GETPID, [0; 6]) as usize;
    let place = &raw mut adopts as usize;
    call(number::PRCTL, [PR_GET_CHILD_SUBREAPER, place, 0, 0, 0, 0]);
    adopts == 1
        && works(call(number::WAIT4, [usize::MAX, &raw mut status as usize, 1, 0, 0, 0]))
        && works(find_child(P_ALL, 0))
        && call(number::KILL, [pid, 0, 0, 0, 0, 0]) == 0
        && call(number::LSEEK, [CHILDREN as usize, 0, 0, 0, 0, 0]) == 0
        && call(number::READ, [CHILDREN as usize, &raw mut status as usize, 1, 0, 0, 0]) >= 0
        && poll(&mut [], Some(0))
        && call(number::SENDTO, [usize::MAX, 0, 0, 0, 0, 0]) == -EBADF
        && ends_of_children().is_some_and(forget_it)
}

fn forget_it(fd: i32) -> bool {
    call(number::CLOSE, [fd as usize, 0, 0, 0, 0, 0]) == 0
}

/// Kills whoever is in the cgroup, all at once. Without a cgroup the handle is not open.
pub fn kill_cgroup() {
    call(number::WRITE, [CGROUP_KILL as usize, b"1".as_ptr() as usize, 1, 0, 0, 0]);
}

/// Removes the cgroup, unless the host has done it.
pub fn remove_cgroup(name: *const u8) {
    const AT_REMOVEDIR: usize = 0x200;
    call(number::UNLINKAT, [CGROUP_PARENT as usize, name as usize, AT_REMOVEDIR, 0, 0, 0]);
}

pub fn exit() -> ! {
    loop {
        call(number::EXIT_GROUP, [0; 6]);
    }
}

/// Ends with a status that says that this machine does not let us work.
pub fn give_up() -> ! {
    loop {
        call(number::EXIT_GROUP, [1, 0, 0, 0, 0, 0]);
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    exit()
}
