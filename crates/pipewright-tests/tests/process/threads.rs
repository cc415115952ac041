//! Starts from several threads with different privileges, of which one hangs.

use std::thread;

use pipewright::{Command, Scope};
use pipewright_test_macros::isolated_test;
use pipewright_tests::kernel::hold;
use pipewright_tests::skip::{Need, is_root, skipped};

use super::puppet;

/// Returns the status of a child that ends with this process, started from a thread that has run `before`.
fn status_seen_by_a_child(before: fn()) -> String {
    let start = move || {
        before();
        let mut command = Command::new("cat");
        command.arg("/proc/self/status").kill_on_parent_exit(Scope::Child).read().unwrap()
    };
    thread::spawn(start).join().unwrap()
}

fn line<'a>(status: &'a str, name: &str) -> &'a str {
    status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim()
}

fn give_up_new_privileges() {
    // SAFETY: numbers; it is of this thread alone.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
}

fn give_up_a_capability() {
    const CAP_NET_RAW: libc::c_ulong = 13;
    // SAFETY: as above.
    assert_eq!(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, CAP_NET_RAW, 0, 0, 0) }, 0);
}

fn install_seccomp_filter() {
    // It holds nothing that a child here calls.
    std::mem::forget(hold(libc::SYS_acct));
}

#[isolated_test]
fn a_child_that_ends_with_us_has_the_privileges_of_its_thread() {
    let plain = status_seen_by_a_child(|| ());
    let privileges = ["NoNewPrivs:", "CapBnd:", "Seccomp:", "Seccomp_filters:"];
    let of = |status: &str| privileges.map(|name| line(status, name).to_owned());
    let given_up = status_seen_by_a_child(give_up_new_privileges);
    assert_eq!(line(&given_up, "NoNewPrivs:"), "1");
    let filtered = status_seen_by_a_child(install_seccomp_filter);
    assert_eq!(line(&filtered, "Seccomp:"), "2");
    if is_root() {
        let without = status_seen_by_a_child(give_up_a_capability);
        assert_ne!(line(&without, "CapBnd:"), line(&plain, "CapBnd:"));
    }
    // Other threads are unchanged.
    assert_eq!(of(&status_seen_by_a_child(|| ())), of(&plain));
}

/// Returns a command whose start hangs in the change of its directory until it is released.
fn hanging(change: fn(&mut Command) -> &mut Command) -> Command {
    let mut command = puppet(["exit=0"]);
    change(command.current_dir("/"));
    command
}

#[track_caller]
fn check_a_hanging_start_delays_no_other(change: fn(&mut Command) -> &mut Command) {
    let Some(held) = hold(libc::SYS_chdir) else {
        return skipped(Need::SeccompNotify, "no call can be held here");
    };
    thread::scope(|scope| {
        let hangs = scope.spawn(|| hanging(change).status().unwrap().success());
        let call = held.wait_for_one();
        let others: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| change(&mut puppet(["exit=0"])).status().unwrap().success()))
            .collect();
        for other in others {
            assert!(other.join().unwrap());
        }
        assert!(!hangs.is_finished());
        held.continue_call(call);
        assert!(hangs.join().unwrap());
    });
}

#[isolated_test]
fn a_hanging_start_delays_no_child_that_ends_with_us() {
    check_a_hanging_start_delays_no_other(|command| command.kill_on_parent_exit(Scope::Child));
}

#[isolated_test]
fn a_hanging_start_delays_no_child_of_another_user() {
    if !is_root() {
        return skipped(Need::Root, "changing the user needs root");
    }
    // SAFETY: numbers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1) }, 0);
    check_a_hanging_start_delays_no_other(|command| command.uid(65534));
    // SAFETY: asks only.
    assert_eq!(unsafe { libc::prctl(libc::PR_GET_DUMPABLE) }, 1);
}
