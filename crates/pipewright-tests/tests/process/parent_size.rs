//! Promise 6: the same spawn time from a 4 GiB parent as from a small one, for every option.
//!
//! Times are measured in `bench/`. This test checks the fact behind them: a start copies no memory of the parent. After
//! a copy (fork), every page that the parent writes would fault once more.

use super::cannot_supervise;
use pipewright::{Command, Resource};
use pipewright_test_macros::isolated_test;
use pipewright_tests::skip::{Need, is_forced_off, is_root, skipped};

const PAGE_BYTES: usize = 4096;

/// Returns the minor page faults of this process so far.
fn faults() -> i64 {
    // SAFETY: all zeroes is an rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a live rusage.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) }, 0);
    usage.ru_minflt
}

fn touch(memory: &mut [u8]) {
    for page in memory.chunks_mut(PAGE_BYTES) {
        page[0] = page[0].wrapping_add(1);
    }
}

fn available_bytes() -> usize {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = info.lines().find(|line| line.starts_with("MemAvailable:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

#[isolated_test]
fn a_start_from_a_large_parent_copies_nothing() {
    if is_forced_off("vfork") {
        return skipped(Need::Vfork, "this build forks");
    }
    let mut bytes = 4 << 30;
    if available_bytes() < bytes + (2 << 30) {
        skipped(Need::Memory, "too little memory for a parent of 4 GiB: tried with 256 MiB");
        bytes = 256 << 20;
    }
    let mut memory = vec![1_u8; bytes];
    touch(&mut memory);
    let file = || std::fs::File::open("/dev/null").unwrap();
    type Change = fn(&mut Command) -> &mut Command;
    let mut options: Vec<(&str, Change)> = vec![
        ("nothing", |command| command),
        ("own_group", |command| command.own_group()),
        ("own_session", |command| command.own_session()),
        ("env and bare name", |command| command.env("PATH", "/bin:/usr/bin")),
        ("current_dir", |command| command.current_dir("/")),
        ("kill_on_parent_exit", |command| command.kill_on_parent_exit(pipewright::Scope::Child)),
        ("contain", |command| command.contain(pipewright::Contain::Tree)),
        ("rlimit", |command| command.rlimit(Resource::CoreDump, Some(0), Some(0))),
        ("umask and nice", |command| command.umask(0o77).nice(1)),
        ("inherit_all", |command| command.inherit_all()),
    ];
    if !cannot_supervise() {
        options.push(("kill_on_parent_exit of the tree", |command| {
            command.kill_on_parent_exit(pipewright::Scope::Tree)
        }));
    }
    if is_root() {
        options.push(("uid, gid, groups", |command| command.uid(65534).gid(65534).groups(&[])));
        options.push(("chroot", |command| command.chroot("/")));
    } else {
        skipped(Need::Root, "uid and chroot need root");
    }
    for (name, change) in options {
        let mut command = Command::new("true");
        change(&mut command).inherit(file()).inherit_fd_as(file(), 77);
        let before = faults();
        assert!(command.status().unwrap().success(), "{name}");
        touch(&mut memory);
        let new = faults() - before;
        // A fork would fault once for each of at least 65,536 pages.
        assert!(new < 2_000, "{name}: {new} page faults");
    }
}
