//! Commands in slots are like others: their environment, handles and rights, and the errors of their starts.

use pipewright::{Command, Contain, ErrorKind, TreeSlot};
#[cfg(unix)]
use pipewright_test_macros::isolated_test;
use pipewright_test_macros::watched_test;
#[cfg(unix)]
use pipewright_tests::TRUE;
#[cfg(target_os = "linux")]
use pipewright_tests::count;

#[cfg(target_os = "linux")]
use super::few_handles;
use super::puppet;
use super::tree_slot::has_no_slots;

fn slot() -> Option<TreeSlot> {
    (!has_no_slots()).then(|| TreeSlot::new().unwrap())
}

#[watched_test]
fn a_slot_holds_one_command_at_a_time() {
    let Some(slot) = slot() else { return };
    let first = puppet(["wait=600"]).contain_in(&slot).spawn().unwrap();
    let error = puppet(["exit=0"]).contain_in(&slot.clone()).status().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::SlotInUse);
    assert!(error.to_string().ends_with("wait for its command, and drop its handle"), "{error}");
    first.kill().unwrap();
    first.wait().unwrap();
    let error = puppet(["exit=0"]).contain_in(&slot).status().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::SlotInUse, "it may have leftovers until the drop");
    drop(first);
    assert!(puppet(["exit=0"]).contain_in(&slot).status().unwrap().success());
}

/// The name of a setter, and a call of it.
type Setting = (&'static str, fn(&mut Command));

#[watched_test]
fn settings_that_contradict_a_slot_are_refused_by_name() {
    let Some(slot) = slot() else { return };
    let refused: [Setting; 3] = [
        ("contain", |command| _ = command.contain(Contain::Tree)),
        ("detached", |command| _ = command.detached()),
        ("foreground", |command| _ = command.own_group().foreground()),
    ];
    #[cfg(unix)]
    let unix: [Setting; 5] = [
        ("uid", |command| _ = command.uid(1)),
        ("gid", |command| _ = command.gid(1)),
        ("groups", |command| _ = command.groups(&[1])),
        ("chroot", |command| _ = command.chroot("/")),
        ("inherit_all", |command| _ = command.inherit_all()),
    ];
    #[cfg(not(unix))]
    let unix: [Setting; 0] = [];
    for (name, set) in refused.into_iter().chain(unix) {
        let mut command = puppet(["exit=0"]);
        set(command.contain_in(&slot));
        let error = command.status().unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::InvalidInput, "{name}: {error}");
        assert!(error.to_string().contains(&format!("`{name}`")), "{name}: {error}");
    }
    assert!(puppet(["exit=0"]).contain_in(&slot).start_and_forget().is_err());
    assert!(puppet(["exit=0"]).contain_in(&slot).status().unwrap().success());
}

#[watched_test]
fn errors_of_a_start_in_a_slot_are_those_of_any_start() {
    let Some(slot) = slot() else { return };
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text");
    std::fs::write(&text, "no program").unwrap();
    let script = dir.path().join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    #[cfg(unix)]
    for file in [&script, &dir.path().join("format")] {
        use std::os::unix::fs::PermissionsExt as _;
        if !file.exists() {
            std::fs::write(file, "no program").unwrap();
        }
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let program = |program: &std::path::Path| Command::new(program);
    let mut commands = vec![
        Command::new("no-such-program"),
        program(&dir.path().join("missing")),
        program(&text),
        program(dir.path()),
    ];
    #[cfg(unix)]
    {
        commands.push(program(&script));
        commands.push(program(&dir.path().join("format")));
        let mut large = puppet(["exit=0"]);
        large.args(std::iter::repeat_n("x".repeat(100 << 10), 80));
        commands.push(large);
        let mut larger = puppet(["exit=0"]);
        larger.args(std::iter::repeat_n("x".repeat(100 << 10), 300));
        commands.push(larger);
        let mut long = puppet(["exit=0"]);
        long.arg("x".repeat(200 << 10));
        commands.push(long);
        let mut nowhere = Command::new("no-such-program");
        nowhere.env("PATH", "/no/such:relative::/usr/bin");
        commands.push(nowhere);
    }
    for dir in [dir.path().join("missing"), text.clone()] {
        let mut command = puppet(["exit=0"]);
        command.current_dir(dir);
        commands.push(command);
    }
    let mut nul = puppet(["exit=0"]);
    nul.arg("a\0b");
    commands.push(nul);
    for mut command in commands {
        let plain = command.status().unwrap_err();
        let error = command.contain_in(&slot).status().unwrap_err();
        assert_eq!(error.to_string(), plain.to_string());
        assert_eq!(error.kind(), plain.kind(), "{error}");
        assert_eq!(error.raw_os_error(), plain.raw_os_error(), "{error}");
        assert_eq!(error.is_execution(), plain.is_execution(), "{error}");
    }
    assert!(puppet(["exit=0"]).contain_in(&slot).status().unwrap().success());
}

#[cfg(unix)]
#[watched_test]
fn a_command_in_a_slot_is_like_any_other() {
    let Some(slot) = slot() else { return };
    let same = |change: &dyn Fn(&mut Command), acts: &[&str]| {
        let mut command = puppet(acts);
        change(&mut command);
        let plain = command.contain(Contain::Tree).read().unwrap();
        let mut command = puppet(acts);
        change(&mut command);
        assert_eq!(command.contain_in(&slot).read().unwrap(), plain, "{acts:?}");
    };
    same(&|_| (), &["handles"]);
    for field in ["SigBlk", "SigIgn", "SigCgt", "NSsid", "NSpgid", "Groups", "Umask", "Uid"] {
        if field != "NSpgid" {
            same(&|_| (), &[&format!("status={field}")]);
        }
        same(&|command| _ = command.umask(0o27).nice(3), &[&format!("status={field}")]);
    }
    same(&|command| _ = command.default_signal(pipewright::Signal::HUP), &["status=SigIgn"]);
    same(&|_| (), &["limits", "cwd", "env-all"]);
    let limit = |command: &mut Command| {
        command.rlimit(pipewright::Resource::OpenFiles, Some(99), Some(200));
        command.rlimit(pipewright::Resource::CoreDump, Some(0), None);
    };
    let mut refused = puppet(["exit=0"]);
    limit(&mut refused);
    let plain = refused.status().map_err(|error| error.to_string());
    let error = refused.contain_in(&slot).status().map_err(|error| error.to_string());
    assert_eq!(error, plain);
    same(
        &|command| {
            command.rlimit(pipewright::Resource::OpenFiles, Some(99), Some(200));
        },
        &["limits"],
    );
    same(&|command| _ = command.current_dir("/usr"), &["cwd"]);
    same(&|command| _ = command.env_clear().env("A", "1"), &["env-all"]);
    same(&|command| _ = command.arg0("other"), &["args"]);
    let grouped = puppet(["status=NSpgid"]).own_group().contain_in(&slot).capture().unwrap();
    assert!(grouped.stdout.ends_with(&grouped.pid.to_string()), "{grouped:?}");
    let sessioned = puppet(["status=NSsid"]).own_session().contain_in(&slot).capture().unwrap();
    assert!(sessioned.stdout.ends_with(&sessioned.pid.to_string()), "{sessioned:?}");
}

#[cfg(unix)]
#[watched_test]
fn arguments_and_environments_may_be_large() {
    let Some(slot) = slot() else { return };
    let sum = |command: &mut Command| {
        let output = command.contain_in(&slot).capture().unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    for _ in 0..3 {
        let mut args = Command::new("sh");
        args.args(["-c", "printf '%s\\n' $# ${#1} ${#12}", "sh"]);
        args.args(std::iter::repeat_n("x".repeat(90_000), 12));
        assert_eq!(sum(&mut args), "12\n90000\n90000\n", "more than 1 MiB");
        let mut variables = Command::new("sh");
        variables.args(["-c", "env | grep -c ^PIPEWRIGHT_V"]);
        variables.envs((0..3000).map(|number| (format!("PIPEWRIGHT_V{number}"), "value")));
        assert_eq!(sum(&mut variables), "3000\n");
        assert_eq!(sum(&mut puppet(["out=x"])), "x");
    }
}

#[cfg(target_os = "linux")]
#[watched_test]
fn handles_are_inherited_by_number_even_if_the_numbers_collide() {
    use std::os::fd::AsRawFd as _;
    let Some(slot) = slot() else { return };
    let dir = tempfile::tempdir().unwrap();
    let files: Vec<_> = (0..6)
        .map(|index| {
            let path = dir.path().join(index.to_string());
            std::fs::write(&path, index.to_string()).unwrap();
            std::fs::File::open(path).unwrap()
        })
        .collect();
    // The numbers that the supervisor uses itself, and those under which it receives the handles.
    for first in [3, 5, 8, 9, 11] {
        let mut command = Command::new("sh");
        let reads: String =
            (first..first + 6).map(|fd| format!("cat /proc/self/fd/{fd};")).collect();
        command.args(["-c", &format!("{reads} ls -1 /proc/self/fd | wc -l")]);
        for (index, file) in files.iter().enumerate() {
            command.inherit_fd_as(file.try_clone().unwrap(), first + index as i32);
        }
        let capture = command.contain_in(&slot).capture().unwrap();
        // Stdio, the six, and the directory that `ls` reads.
        assert_eq!(capture.stdout.trim_end(), "01234510", "{first}: {capture:?}");
    }
    let mut command = puppet(["handles"]);
    let number = files[0].as_raw_fd();
    command.inherit(files[0].try_clone().unwrap());
    assert!(number > 2);
    let plain = command.read().unwrap();
    assert_eq!(command.contain_in(&slot).read().unwrap(), plain);
}

#[cfg(unix)]
#[isolated_test]
fn the_working_directory_is_the_one_at_the_start_of_the_command() {
    let Some(slot) = slot() else { return };
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    std::fs::create_dir(dir.join("below")).unwrap();
    std::fs::copy(TRUE, dir.join("program")).unwrap();
    for _ in 0..2 {
        std::env::set_current_dir(&dir).unwrap();
        let cwd = |command: &mut Command| command.contain_in(&slot).read().unwrap();
        assert_eq!(cwd(&mut puppet(["cwd"])), dir.display().to_string());
        let below = cwd(puppet(["cwd"]).current_dir("below"));
        assert_eq!(below, dir.join("below").display().to_string());
        assert!(Command::new("./program").contain_in(&slot).status().unwrap().success());
        std::env::set_current_dir("/usr").unwrap();
        assert_eq!(cwd(&mut puppet(["cwd"])), "/usr");
        let error = Command::new("./program").contain_in(&slot).status().unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::NotFound { searched: Vec::new() });
    }
}

#[cfg(target_os = "linux")]
#[isolated_test]
fn a_start_without_room_for_handles_leaves_no_command_running() {
    let Some(slot) = slot() else { return };
    puppet(["exit=0"]).contain_in(&slot).status().unwrap();
    let open = count::handles_at_rest();
    let (mut failed, mut started) = (0, 0);
    for room in 0..12 {
        let held = few_handles::leave(room);
        let child = puppet(["wait=600"]).contain_in(&slot).spawn();
        let result = child.as_ref().map(drop).map_err(|error| error.kind().clone());
        drop(held);
        match result {
            Ok(()) => started += 1,
            Err(ErrorKind::Limit { .. }) => {
                failed += 1;
                let below = alive_below_the_slot();
                assert!(below.is_empty(), "{room}: {below:?}");
            }
            Err(kind) => panic!("{room}: {kind:?}"),
        }
        drop(child);
        assert!(puppet(["exit=0"]).contain_in(&slot).status().unwrap().success(), "{room}");
    }
    assert!(failed >= 1 && started >= 1, "{failed} {started}");
    assert_eq!(count::handles_at_rest(), open);
}

/// Returns the processes below this one that are no supervisors.
#[cfg(target_os = "linux")]
fn alive_below_the_slot() -> Vec<u32> {
    let supervisors = pipewright_tests::alive::supervisors(std::process::id());
    let mut found = Vec::new();
    for supervisor in &supervisors {
        let list = format!("/proc/{supervisor}/task/{supervisor}/children");
        let list = std::fs::read_to_string(list).unwrap_or_default();
        found.extend(list.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    found.retain(|pid| !supervisors.contains(pid));
    found
}

#[cfg(target_os = "linux")]
#[isolated_test]
fn a_host_without_stdio_can_use_a_slot() {
    let Some(slot) = slot() else { return };
    let listed = |command: &mut Command| command.stdout(pipewright::Stdio::piped()).output();
    // Above the three, or the copies would take their numbers.
    // SAFETY: numbers.
    let kept = [0, 1, 2].map(|fd| unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 100) });
    for fd in 0..3 {
        // SAFETY: std's handles on them only ever fail from now on; this process runs nothing but this test.
        unsafe { libc::close(fd) };
    }
    // Nothing can be printed before they are restored, so a panic must come later.
    // A shell would use the free numbers itself.
    let mut command = Command::new("ls");
    command.args(["-1", "/proc/self/fd"]).stdin(pipewright::Stdio::inherit());
    command.stderr(pipewright::Stdio::inherit());
    let plain = listed(&mut command).map(|output| output.stdout);
    let in_slot = listed(command.contain_in(&slot)).map(|output| output.stdout);
    for (number, fd) in (0..3).zip(kept) {
        // SAFETY: numbers; the copies above.
        unsafe { libc::dup2(fd, number) };
    }
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    assert_eq!(text(in_slot.unwrap()), text(plain.unwrap()));
}
