//! A child inherits exactly its stdio and the list, while 8 threads start children and others open inheritable ones;
//! the other options of a child.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[cfg(target_os = "linux")]
use pipewright::process::unix::CommandExt as _;
use pipewright::{
    Command, ErrorKind, Handle, HandleKind, PipeOptions, Resource, Signal, Stdio, open_handles,
};
#[cfg(target_os = "linux")]
use pipewright::{Contain, Scope};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::skip::{Need, is_forced_async, is_root, skipped};
#[cfg(target_os = "linux")]
use pipewright_tests::watchdog;
use pipewright_tests::{count, pace};

#[cfg(target_os = "linux")]
use crate::cannot_supervise;
use crate::{ended_by, puppet};

/// Returns a handle that is not close-on-exec, as careless code leaves it.
#[cfg(target_os = "linux")]
fn inheritable() -> OwnedFd {
    let file = File::open("/dev/null").unwrap();
    // SAFETY: numbers.
    let copy = unsafe { libc::dup(file.as_raw_fd()) };
    assert!(copy >= 0);
    // SAFETY: the call above made it, and nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(copy) }
}

/// Returns number and kind of the handles of a child of this command.
#[cfg(target_os = "linux")]
fn handles_of_child(command: &mut Command) -> Vec<(i64, String)> {
    let text = command.read().unwrap();
    let line = |line: &str| {
        let (number, kind) = line.split_once(' ').unwrap();
        (number.parse().unwrap(), kind.to_owned())
    };
    text.lines().map(line).collect()
}

/// Returns the inheritable handles of this process: at first those that it was started with.
fn inheritable_numbers() -> Vec<i64> {
    let open = open_handles().unwrap();
    open.iter().filter(|handle| handle.inheritable).map(|handle| handle.number).collect()
}

fn is_inheritable(number: i64) -> Option<bool> {
    let open = open_handles().unwrap();
    open.iter().find(|handle| handle.number == number).map(|handle| handle.inheritable)
}

#[cfg(target_os = "linux")]
#[isolated_test]
fn children_of_eight_threads_inherit_only_listed_handles() {
    const STARTERS: usize = 8;
    let starts = pace::rounds(30, 4);
    let done = AtomicBool::new(false);
    let opened = AtomicUsize::new(0);
    let before = inheritable_numbers();
    // One handle stays open all the time, so that there is always one to leak.
    let always = inheritable();
    assert_eq!(is_inheritable(i64::from(always.as_raw_fd())), Some(true));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let batch: Vec<OwnedFd> = (0..20).map(|_| inheritable()).collect();
                    opened.fetch_add(batch.len(), Ordering::Relaxed);
                }
            });
        }
        let starters: Vec<_> = (0..STARTERS)
            .map(|_| scope.spawn(|| (0..starts).for_each(start_with_a_list)))
            .collect();
        let results: Vec<_> = starters.into_iter().map(|it| it.join()).collect();
        done.store(true, Ordering::Relaxed);
        results.into_iter().for_each(|result| result.unwrap());
    });
    assert!(opened.into_inner() > STARTERS * starts, "there was something to leak");
    drop(always);
    assert_eq!(inheritable_numbers(), before);
}

/// Starts a child with a list of its own, and checks the handles on both sides.
#[cfg(target_os = "linux")]
fn start_with_a_list(round: usize) {
    let (reader, writer) = pipewright::pipe(PipeOptions::default()).unwrap();
    let file = Handle::from(File::open("/proc/self/status").unwrap());
    let (reader, writer) = (Handle::from(reader), Handle::from(writer));
    // Numbers that other threads of this process use for other things meanwhile.
    let wanted = [100 + round as i32 % 7, 3 + round as i32 % 40];
    let listed = [reader.number(), writer.number(), file.number()];
    let mut expected = vec![(listed[0], "pipe".to_owned())];
    let mut command = puppet(["handles"]);
    command.stdin(Stdio::null()).inherit(reader);
    for (handle, wanted, kind) in [(writer, wanted[0], "pipe"), (file, wanted[1], "file")] {
        if i64::from(wanted) == listed[0] {
            continue;
        }
        command.inherit_fd_as(handle, wanted);
        expected.push((i64::from(wanted), kind.to_owned()));
    }
    let mut all: Vec<_> = handles_of_child(&mut command);
    let stdio = all.drain(..3).map(|(number, _)| number).collect::<Vec<_>>();
    assert_eq!(stdio, [0, 1, 2]);
    expected.sort();
    assert_eq!(all, expected, "in round {round}");
    assert_eq!(is_inheritable(listed[0]), Some(false));
}

#[isolated_test]
fn a_listed_handle_is_never_marked_inheritable_on_our_side() {
    let done = AtomicBool::new(false);
    let looks = AtomicUsize::new(0);
    let file = File::open("/dev/null").unwrap();
    let listed = Handle::from(file.try_clone().unwrap());
    let number = listed.number();
    let mut commands: Vec<Command> = (0..4)
        .map(|_| {
            let mut command = puppet(["exit=0"]);
            command
                .inherit(file.try_clone().unwrap())
                .inherit_fd_as(Handle::copy_of_number(number as i32).unwrap(), number as i32);
            command
        })
        .collect();
    let before = inheritable_numbers();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert_eq!(inheritable_numbers(), before);
                looks.fetch_add(1, Ordering::Relaxed);
            }
        });
        let starters: Vec<_> = commands
            .iter_mut()
            .map(|command| {
                scope.spawn(|| {
                    // And on until the other thread has had its turns.
                    let (mut starts, least) = (0, pace::rounds(50, 10));
                    while starts < least || looks.load(Ordering::Relaxed) <= 10 {
                        assert!(command.status().unwrap().success());
                        starts += 1;
                    }
                })
            })
            .collect();
        let results: Vec<_> = starters.into_iter().map(|it| it.join()).collect();
        done.store(true, Ordering::Relaxed);
        results.into_iter().for_each(|result| result.unwrap());
    });
    assert_eq!(is_inheritable(number), Some(false));
}

#[isolated_test]
fn a_listed_handle_that_was_closed_is_named_in_the_error() {
    if is_forced_async() {
        return skipped(
            Need::BlockingVerbs,
            "a runtime takes the numbers that are free, which would be those",
        );
    }
    let null = || File::open("/dev/null").unwrap();
    let closed = Handle::from(null());
    let number = closed.number() as i32;
    let mut command = puppet(["exit=0"]);
    command.inherit(null()).inherit(closed);
    // Other code of the program must not do this.
    // SAFETY: this process runs nothing but this test, and ends without the owner's drop.
    assert_eq!(unsafe { libc::close(number) }, 0);
    let error = command.status().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::InvalidInput);
    assert!(error.to_string().contains("cannot pass it inherit[1]: "), "{error}");
    // As stdio: closed again, or dropped twice.
    let mut command2 = puppet(["exit=0"]);
    let file = null();
    let number = file.as_raw_fd();
    command2.stdout(file);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::close(number) }, 0);
    let error = command2.status().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::InvalidInput);
    assert!(error.to_string().contains("cannot redirect its stdout: "), "{error}");
    std::mem::forget((command, command2));
}

#[watched_test]
fn a_listed_pipe_has_the_reported_number_in_the_child() {
    let (mut reader, writer) = pipewright::pipe(PipeOptions::default()).unwrap();
    let writer = Handle::from(writer);
    assert_eq!(writer.kind().unwrap(), HandleKind::Pipe);
    let mut command = Command::new("sh");
    // Uses the path, because after `>&` some shells accept only a single digit, and the number may have more.
    command.args(["-c", "echo through the list > \"/dev/fd/$1\"", "sh"]);
    command.arg(writer.number().to_string());
    command.inherit(writer);
    command.run().unwrap();
    drop(command);
    let mut text = String::new();
    std::io::Read::read_to_string(&mut reader, &mut text).unwrap();
    assert_eq!(text, "through the list\n");
}

/// Returns the numbers of the handles of a child of this command.
fn child_handles(change: impl FnOnce(&mut Command)) -> Vec<i32> {
    let mut command = puppet(["handles"]);
    change(&mut command);
    let text = command.read().unwrap();
    text.lines().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect()
}

#[watched_test]
fn a_child_inherits_its_stdio_and_the_listed_handles_only() {
    // Not close-on-exec, as careless code leaves it.
    let open = std::fs::File::open("/dev/null").unwrap();
    // SAFETY: takes numbers; the new handle is closed below.
    let careless = unsafe { libc::dup(open.as_raw_fd()) };
    assert_eq!(child_handles(|_| {}), [0, 1, 2]);

    let listed = Handle::from(open.try_clone().unwrap());
    let number = listed.number() as i32;
    assert_eq!(
        child_handles(|command| {
            command.inherit(listed);
        }),
        [0, 1, 2, number]
    );
    let listed = open.try_clone().unwrap();
    assert_eq!(
        child_handles(|command| {
            command.inherit_fd_as(listed, 77);
        }),
        [0, 1, 2, 77]
    );

    let all = child_handles(|command| {
        command.inherit_all();
    });
    assert!(all.contains(&careless), "{careless} is not in {all:?}");
    // SAFETY: ours.
    unsafe { libc::close(careless) };
}

#[watched_test]
fn our_own_handles_stay_uninheritable() {
    let file = std::fs::File::open("/dev/null").unwrap();
    let copy = file.try_clone().unwrap();
    let flags = || rustix::io::fcntl_getfd(&copy).unwrap();
    let before = flags();
    let mut command = puppet(["exit=0"]);
    command.inherit(file);
    assert!(command.status().unwrap().success());
    assert_eq!(flags(), before);
}

#[cfg(target_os = "linux")]
#[watched_test]
fn group_session_umask_nice_and_limits_are_applied() {
    let sh = |script: &str, change: fn(&mut Command) -> &mut Command| {
        let mut command = Command::new("sh");
        change(command.args(["-c", script])).read().unwrap()
    };
    // Fields 1, 5 and 6 of proc(5)'s stat: pid, group, session.
    let ids = "cut -d' ' -f1,5,6 /proc/$$/stat";
    let of = |text: String| -> Vec<u32> { text.split(' ').map(|id| id.parse().unwrap()).collect() };
    let [pid, group, session] = of(sh(ids, |command| command))[..] else { panic!() };
    assert!(pid != group && pid != session);
    let [pid, group, session] = of(sh(ids, |command| command.own_group()))[..] else { panic!() };
    assert!(pid == group && pid != session);
    let [pid, group, session] = of(sh(ids, |command| command.own_session()))[..] else { panic!() };
    assert!(pid == group && pid == session);
    let [pid, group, _] = of(sh(ids, |command| command.process_group(0)))[..] else { panic!() };
    assert!(pid == group);

    assert_eq!(sh("umask", |command| command.umask(0o27)), "0027");
    let nice: i32 = sh("nice", |command| command).parse().unwrap();
    let nicer: i32 = sh("nice", |command| command.nice(3)).parse().unwrap();
    assert_eq!(nicer, (nice + 3).min(19));
    let limit = |command| sh(command, |c| c.rlimit(Resource::OpenFiles, Some(100), Some(200)));
    assert_eq!((limit("ulimit -Sn").as_str(), limit("ulimit -Hn").as_str()), ("100", "200"));
}

#[watched_test]
fn an_existing_group_can_be_joined() {
    let leader = puppet(["wait=600"]).own_group().spawn().unwrap();
    let member = puppet(["wait=600"]).process_group(leader.id() as i32).spawn().unwrap();
    leader.kill().unwrap();
    ended_by(leader.wait().unwrap(), Signal::KILL);
    ended_by(member.wait().unwrap(), Signal::KILL);
}

#[watched_test]
fn user_and_groups_are_applied() {
    if !is_root() {
        return skipped(Need::Root, "changing the user needs root");
    }
    let id = |change: fn(&mut Command) -> &mut Command| {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $(id -u) $(id -g) $(id -G)"]).env("PATH", "/usr/bin:/bin");
        change(&mut command).read().unwrap()
    };
    assert_eq!(id(|command| command.uid(65534).gid(65533)), "65534 65533 65533");
    assert_eq!(id(|command| command.gid(7).groups(&[7, 8, 9])), "0 7 7 8 9");
    // Root's groups are dropped for another user.
    assert_eq!(id(|command| command.uid(65534)), "65534 0 0");
}

#[watched_test]
fn the_root_directory_is_applied() {
    if !is_root() {
        return skipped(Need::Root, "changing the root directory needs root");
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("bin")).unwrap();
    // A program that runs without any library of this system.
    // By another process: a child that another test starts has the files that this one writes open until it executes,
    // and such a file is busy.
    let copy = dir.path().join("bin/puppet");
    Command::new("cp").arg(env!("CARGO_BIN_EXE_puppet")).arg(copy).run().unwrap();
    let error = Command::new("/bin/no-such").chroot(dir.path()).status().unwrap_err();
    assert!(error.to_string().contains("/bin/no-such"), "{error}");
    let result = Command::new("/bin/puppet").chroot(dir.path()).status();
    if cfg!(target_feature = "crt-static") {
        assert!(result.unwrap().success());
    } else {
        // The new root lacks the loader, which shows that the search was inside it.
        let error = result.unwrap_err();
        assert!(error.raw_os_error() == Some(libc::ENOENT), "{error}");
    }
}

#[watched_test]
fn arg0_environment_and_directory_are_applied() {
    let text = puppet(["args"]).arg0("another name").read().unwrap();
    assert_eq!(text, "another name\nargs");
    let mut command = puppet(["env-all"]);
    command.env_clear().env("A", "1").env("B", "").env("C", "3").env_remove("C");
    assert_eq!(command.read().unwrap(), "A=1\nB=");
    assert_eq!(puppet(["cwd"]).current_dir("/").read().unwrap(), "/");
    assert_eq!(puppet(["env=PW"]).env("PW", "x").read().unwrap(), "x");
}

#[watched_test]
fn a_relative_program_is_resolved_in_the_childs_directory() {
    let puppet = std::path::Path::new(env!("CARGO_BIN_EXE_puppet"));
    let mut command = Command::new("./puppet");
    command.arg("out=here").current_dir(puppet.parent().unwrap());
    assert_eq!(command.read().unwrap(), "here");
}

#[isolated_test]
fn a_child_is_killed_when_its_parent_ends_and_not_when_a_thread_does() {
    let child = std::thread::spawn(|| {
        puppet(["wait=600"])
            .kill_on_parent_exit(pipewright::Scope::Child)
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    });
    let child = child.join().unwrap();
    // The starting thread has ended; its death signal would have come first.
    assert!(child.signal(Signal::CONT).unwrap());
    assert_eq!(child.try_wait().unwrap(), None);
    assert_eq!(count::zombies(), Vec::<u32>::new());
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Returns the lines with that beginning from the status of each thread of this process.
#[cfg(target_os = "linux")]
fn of_each_thread(names: &[&str]) -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    // A thread that has been joined may be listed a moment longer.
    let status = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("status")).ok();
    let is_asked = |line: &&str| names.iter().any(|name| line.starts_with(name));
    let joined = |status: String| status.lines().filter(is_asked).collect::<Vec<_>>().join(" ");
    tasks.filter_map(|task| status(task.unwrap()).map(joined)).collect()
}

#[isolated_test]
#[cfg(target_os = "linux")]
fn an_exec_that_fails_leaves_all_threads_with_the_same_user() {
    if !is_root() {
        return skipped(Need::Root, "another user can be chosen by root only");
    }
    let mut command = Command::new("/no/such/program");
    command.uid(65534).gid(65533).groups(&[65532]);
    // The other threads run until all have been looked at: one that is about to end is listed for a moment longer, and
    // the C library does not change it any more.
    let looked = std::sync::Barrier::new(3);
    let (error, users) = std::thread::scope(|scope| {
        let _others = [scope.spawn(|| looked.wait()), scope.spawn(|| looked.wait())];
        let error = command.exec();
        let users = of_each_thread(&["Uid:", "Gid:", "Groups:"]);
        looked.wait();
        (error, users)
    });
    assert!(matches!(error.kind(), pipewright::ErrorKind::NotFound { .. }), "{error}");
    assert!(users.len() > 1, "{users:?}");
    assert!(users[0].contains("65534") && users[0].contains("65532"), "{users:?}");
    assert!(users.iter().all(|user| *user == users[0]), "{users:?}");
}

/// The new user may stop the child from its change of user on.
#[isolated_test]
#[cfg(target_os = "linux")]
fn a_child_that_its_new_user_stops_before_its_exec_holds_nothing_up() {
    const CASE: &str = "PIPEWRIGHT_STOPPED_START";
    if !is_root() {
        return skipped(Need::Root, "another user can be chosen by root only");
    }
    if std::env::var_os(CASE).is_none() {
        if Command::new("strace").arg("-V").output().is_err() {
            return skipped(Need::Program("strace"), "it stops the child");
        }
        let mut command = std::process::Command::new("strace");
        command.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=setuid", "-e"]);
        command.arg("inject=setuid:signal=SIGSTOP:when=1");
        command.arg(std::env::current_exe().unwrap()).arg(watchdog::current_test());
        command.args(["--exact", "--nocapture", "--test-threads=1"]);
        let output = command.env(CASE, "inside").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        return;
    }
    let code = |change: &dyn Fn(&mut Command)| {
        let mut command = Command::new("sh");
        change(command.args(["-c", "exit $(($(id -u) % 100))"]).uid(65534));
        command.status().unwrap().code()
    };
    for _ in 0..2 {
        assert_eq!(code(&|_| ()), Some(34));
        assert_eq!(code(&|command| _ = command.contain(Contain::Tree)), Some(34));
        assert_eq!(code(&|command| _ = command.kill_on_parent_exit(Scope::Child)), Some(34));
        if !cannot_supervise() {
            assert_eq!(code(&|command| _ = command.kill_on_parent_exit(Scope::Tree)), Some(34));
        }
        // A child with a closure is forked.
        let mut forked = pipewright::process::Command::new("sh");
        forked.args(["-c", "exit 7"]).uid(65534);
        // SAFETY: does nothing.
        let forked = unsafe { forked.pre_exec(|| Ok(())) };
        assert_eq!(forked.status().unwrap().code(), Some(7));
    }
}

#[isolated_test]
#[cfg(target_os = "linux")]
fn a_program_is_searched_for_with_the_effective_user() {
    if !is_root() {
        return skipped(Need::Root, "another real user can be chosen by root only");
    }
    // Root's alone, with a program in it.
    let dir = tempfile::tempdir().unwrap();
    let for_root = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(dir.path(), for_root).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_puppet"), dir.path().join("found")).unwrap();
    // SAFETY: numbers; this process runs nothing but this test.
    assert_eq!(unsafe { libc::setreuid(65534, 0) }, 0);
    let mut command = Command::new("found");
    let status = command.arg("exit=7").env("PATH", dir.path()).status();
    assert_eq!(status.unwrap().code(), Some(7));
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setreuid(0, 0) }, 0);
}
