//! The options of a start, and the ways to start a child that refuse each: the one list of them.
//!
//! [`unix_list`] and [`windows_list`] name every field of a plan, so that a new one does not compile before it has an option, and
//! each option says how every way answers it. The tests start a child with each.

use super::{BadInput, Credentials, Group, Inherit, Plan, SpawnError, UnixOptions, WindowsOptions};

/// An option that not every start has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StartOption {
    Arg0,
    CurrentDir,
    Inherit,
    InheritFdAs,
    InheritAll,
    Contain,
    Limits,
    Foreground,
    Terminal,
    OwnGroup,
    JoinGroup,
    Session,
    Uid,
    Gid,
    Groups,
    Chroot,
    Umask,
    Nice,
    Rlimit,
    DefaultSignal,
    KillOnParentExit,
    StdRules,
    PreExec,
    CreationFlags,
    ShowWindow,
    RawArg,
    ForceQuotes,
    NoWindow,
    BreakawayFromJob,
    AllowBreakaway,
}

/// A way to start a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    not(all(test, target_os = "linux")),
    expect(dead_code, reason = "each system asks for its own")
)]
pub(super) enum Way {
    Linux,
    LinuxSlot,
    Macos,
    Windows,
    WindowsSlot,
}

/// The reason why a way refuses an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The option is for that system only.
    IsFor(&'static str),
    /// A slot does not have it.
    NotInSlot,
}

/// An option, the name of its setter, and true if a plan has it.
type Entry = (StartOption, &'static str, bool);

impl StartOption {
    /// Returns the reason why a way refuses this option; `None` if it does what the option says.
    pub(super) fn refusal(self, way: Way) -> Option<Refusal> {
        use StartOption as It;
        let is_windows = matches!(way, Way::Windows | Way::WindowsSlot);
        let is_slot = matches!(way, Way::LinuxSlot | Way::WindowsSlot);
        let of_unix = is_windows.then_some(Refusal::IsFor("Unix"));
        let not_in_slot = is_slot.then_some(Refusal::NotInSlot);
        match self {
            It::CurrentDir
            | It::Inherit
            | It::Limits
            | It::Terminal
            | It::OwnGroup
            | It::Session
            | It::KillOnParentExit => None,
            It::Arg0
            | It::InheritFdAs
            | It::JoinGroup
            | It::Umask
            | It::Nice
            | It::Rlimit
            | It::DefaultSignal => of_unix,
            // The memory of the supervisor, which is another user's, must not be shared with such a process.
            It::Uid | It::Gid | It::Groups | It::Chroot | It::PreExec => of_unix.or(not_in_slot),
            It::Contain | It::Foreground => not_in_slot,
            It::InheritAll | It::StdRules => not_in_slot.filter(|_| !is_windows),
            It::CreationFlags
            | It::ShowWindow
            | It::RawArg
            | It::ForceQuotes
            | It::NoWindow
            | It::BreakawayFromJob
            | It::AllowBreakaway => (!is_windows).then_some(Refusal::IsFor("Windows")),
        }
    }
}

/// Refuses the first option of a plan that this way does not have.
///
/// # Errors
/// The option is named as its setter.
pub(super) fn check(plan: &Plan<'_>, way: Way) -> Result<(), SpawnError> {
    let of_windows = plan.windows.map(windows_list).into_iter().flatten();
    for (option, setter, is_set) in unix_list(plan).into_iter().chain(of_windows) {
        match option.refusal(way).filter(|_| is_set) {
            None => {}
            Some(Refusal::IsFor(system)) => return Err(SpawnError::unsupported(setter, system)),
            Some(Refusal::NotInSlot) => return Err(SpawnError::bad(BadInput::NotInSlot(setter))),
        }
    }
    Ok(())
}

/// Refuses the first option of a plan that only Windows has: all that Linux refuses without a slot, in less code.
///
/// # Errors
/// The option is named as its setter.
#[cfg(unix)]
pub(super) fn check_windows_options(plan: &Plan<'_>) -> Result<(), SpawnError> {
    let Some(options) = plan.windows else { return Ok(()) };
    match windows_list(options).iter().find(|(.., is_set)| *is_set) {
        Some((_, setter, _)) => Err(SpawnError::unsupported(setter, "Windows")),
        None => Ok(()),
    }
}

/// Returns all options of a plan but those that only Windows has.
pub(super) fn unix_list(plan: &Plan<'_>) -> [Entry; 23] {
    use StartOption as It;
    // Every start has those without a name here. The slot is the way itself.
    let Plan {
        program: _,
        search: _,
        arg0,
        args: _,
        env: _,
        current_dir,
        stdio: _,
        inherit,
        contain,
        limits,
        slot,
        foreground,
        terminal,
        unix,
        windows: _,
    } = *plan;
    let UnixOptions {
        group,
        identity: Credentials { user, group: gid, groups },
        chroot,
        umask,
        nice,
        limits: resource_limits,
        default_signals,
        // A part of the set of signals, which every start has.
        keeps_ignored_pipe: _,
        kill_on_parent_exit,
        std_rules,
        #[cfg(unix)]
        pre_exec,
    } = unix;
    #[cfg(unix)]
    let has_closures = !pre_exec.is_empty();
    #[cfg(not(unix))]
    let has_closures = false;
    let list = inherit.list();
    // A slot contains its command, with the limits that this may say.
    let contains = contain.is_some_and(|contain| slot.is_none() || contain.slot_limits.is_none());
    [
        (It::Arg0, "arg0", arg0.is_some()),
        (It::CurrentDir, "current_dir", current_dir.is_some()),
        (It::Inherit, "inherit", !list.is_empty()),
        (It::InheritFdAs, "inherit_fd_as", list.iter().any(|(_, number)| number.is_some())),
        (It::InheritAll, "inherit_all", matches!(inherit, Inherit::AllAnd(_))),
        (It::Contain, "contain", contains),
        (It::Limits, "limits", limits.is_some()),
        (It::Foreground, "foreground", foreground.is_some()),
        (It::Terminal, "pty", terminal.is_some()),
        (It::OwnGroup, "own_group", *group == Group::Own),
        (It::JoinGroup, "process_group", matches!(group, Group::Join(_))),
        (It::Session, "own_session", *group == Group::Session),
        (It::Uid, "uid", user.is_some()),
        (It::Gid, "gid", gid.is_some()),
        (It::Groups, "groups", groups.is_some()),
        (It::Chroot, "chroot", chroot.is_some()),
        (It::Umask, "umask", umask.is_some()),
        (It::Nice, "nice", nice.is_some()),
        (It::Rlimit, "rlimit", !resource_limits.is_empty()),
        (It::DefaultSignal, "default_signal", !default_signals.is_empty()),
        (It::KillOnParentExit, "kill_on_parent_exit", kill_on_parent_exit.is_some()),
        (It::StdRules, "std_rules", *std_rules),
        (It::PreExec, "pre_exec", has_closures),
    ]
}

/// Returns the options that only Windows has.
pub(super) fn windows_list(options: &WindowsOptions) -> [Entry; 7] {
    use StartOption as It;
    let WindowsOptions {
        creation_flags,
        show_window,
        raw_args,
        force_quotes,
        no_window,
        breakaway_from_job,
        allow_breakaway,
    } = options;
    [
        (It::CreationFlags, "creation_flags", *creation_flags != 0),
        (It::ShowWindow, "show_window", show_window.is_some()),
        (It::RawArg, "raw_arg", !raw_args.is_empty()),
        (It::ForceQuotes, "force_quotes", *force_quotes),
        (It::NoWindow, "no_window", *no_window),
        (It::BreakawayFromJob, "breakaway_from_job", *breakaway_from_job),
        (It::AllowBreakaway, "allow_breakaway", *allow_breakaway),
    ]
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;
    use std::path::Path;

    use super::*;
    use crate::base::handle::Handle;
    use crate::base::signal::{Signal, empty_set};
    use crate::base::skipped::{Need, skipped};
    use crate::process::child::ChildHandle;
    use crate::process::limits::TreeLimits;
    use crate::process::pty::{self, PtySize};
    use crate::process::spawn::{
        ChildStdio, Contain, Env, EnvSnapshot, Resource, ResourceLimit, Search, Step, TreeSlot,
        begin, parent_exit, spawn,
    };
    use crate::process::terminal::Foreground;

    /// The values of a plan that runs a shell.
    #[derive(Default)]
    struct Values {
        unix: UnixOptions,
        windows: Option<WindowsOptions>,
        args: Vec<OsString>,
        arg0: Option<OsString>,
        current_dir: Option<&'static Path>,
        list: Vec<(Handle, Option<i32>)>,
        inherits_all: bool,
        contain: Option<Contain>,
        limits: Option<TreeLimits>,
        foreground: Option<Foreground>,
        terminal: Option<(pty::Pty, pty::ChildTerminal)>,
    }

    impl Values {
        fn plan<'a>(
            &'a self,
            env: &'a EnvSnapshot,
            stdout: &'a Handle,
            slot: Option<&'a TreeSlot>,
        ) -> Plan<'a> {
            let list = &self.list;
            Plan {
                program: "sh".as_ref(),
                search: Search::Default,
                arg0: self.arg0.as_deref(),
                args: &self.args,
                env: Env::Inherit(env),
                current_dir: self.current_dir,
                stdio: [ChildStdio::Inherit, ChildStdio::Handle(stdout), ChildStdio::Inherit],
                inherit: match self.inherits_all {
                    true => Inherit::AllAnd(list),
                    false => Inherit::List(list),
                },
                contain: self.contain,
                limits: self.limits.as_ref(),
                slot,
                foreground: self.foreground.as_ref(),
                terminal: self.terminal.as_ref().map(|(_, terminal)| terminal),
                unix: &self.unix,
                windows: self.windows.as_ref(),
            }
        }
    }

    /// A file in memory.
    fn memory() -> Handle {
        Handle::from(rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap())
    }

    /// Returns the text of such a file.
    fn text(file: Handle) -> String {
        let mut bytes = [0; 200];
        let count = File::from(file).read_at(&mut bytes, 0).unwrap();
        String::from_utf8(bytes[..count].to_vec()).unwrap().trim_end().to_owned()
    }

    /// A process that leads a group.
    struct Leader(ChildHandle);

    impl Leader {
        fn start() -> Leader {
            let values = Values {
                unix: UnixOptions { group: Group::Own, ..UnixOptions::default() },
                args: vec!["-c".into(), "exec sleep 1000".into()],
                ..Values::default()
            };
            Leader(spawn(&values.plan(&EnvSnapshot::take(), &memory(), None)).unwrap())
        }
    }

    impl Drop for Leader {
        fn drop(&mut self) {
            self.0.signal(Signal::KILL).unwrap();
            self.0.wait().unwrap();
        }
    }

    /// Sets the option. Returns a script and the output by which a shell shows that it has the option; an empty script where
    /// another suite shows it.
    fn set(option: StartOption, values: &mut Values, leader: &Leader) -> (String, &'static str) {
        use StartOption as It;
        let unix = &mut values.unix;
        let mut windows = WindowsOptions::default();
        let (script, output) = match option {
            It::Arg0 => {
                values.arg0 = Some("other".into());
                ("echo $0", "other")
            }
            It::CurrentDir => {
                values.current_dir = Some(Path::new("/usr"));
                ("pwd", "/usr")
            }
            It::Inherit => {
                values.list.push((memory(), None));
                ("readlink /proc/self/fd/* | grep -c memfd", "1")
            }
            It::InheritFdAs => {
                values.list.push((memory(), Some(77)));
                ("readlink /proc/self/fd/77", "/memfd:test (deleted)")
            }
            It::InheritAll => {
                values.inherits_all = true;
                values.list.push((memory(), Some(78)));
                ("readlink /proc/self/fd/78", "/memfd:test (deleted)")
            }
            It::Contain => {
                values.contain = Some(Contain::tree(false));
                ("", "")
            }
            It::Limits => {
                values.contain = Some(Contain::limited_tree(false));
                values.limits = Some(TreeLimits { best_effort: true, ..TreeLimits::default() });
                ("", "")
            }
            It::Foreground => {
                unix.group = Group::Own;
                // No terminal, which is ignored as one that has hung up.
                values.foreground = Some(Foreground { terminal: memory() });
                ("", "")
            }
            It::Terminal => {
                unix.group = Group::Session;
                values.terminal = Some(pty::open(PtySize::default()).unwrap());
                (
                    "read -r _ _ _ _ _ s t _ < /proc/self/stat; [ $s$t = ${$}0 ] || echo $((s - $$))",
                    "0",
                )
            }
            It::OwnGroup => {
                unix.group = Group::Own;
                ("read -r _ _ _ _ group _ < /proc/self/stat; echo $((group - $$))", "0")
            }
            It::JoinGroup => {
                unix.group = Group::Join(leader.0.pid() as i32);
                ("read -r _ _ _ _ group _ < /proc/self/stat; echo $((group - LEADER))", "0")
            }
            It::Session => {
                unix.group = Group::Session;
                ("read -r _ _ _ _ _ session _ < /proc/self/stat; echo $((session - $$))", "0")
            }
            It::Uid => {
                unix.identity.user = Some(12345);
                ("id -u", "12345")
            }
            It::Gid => {
                unix.identity.group = Some(12345);
                ("id -g", "12345")
            }
            It::Groups => {
                unix.identity.groups = Some(vec![12345]);
                ("set -- $(grep Groups /proc/self/status); echo $2", "12345")
            }
            It::Chroot => {
                unix.chroot = Some("/".into());
                ("pwd", "/")
            }
            It::Umask => {
                unix.umask = Some(0o27);
                ("umask", "0027")
            }
            It::Nice => {
                unix.nice = Some(3);
                ("echo $(($(nice) - NICE))", "3")
            }
            It::Rlimit => {
                let (resource, limit) = (Resource::OpenFiles, Some(99));
                unix.limits.push(ResourceLimit { resource, soft: limit, hard: limit });
                ("ulimit -n", "99")
            }
            It::DefaultSignal => {
                unix.default_signals.push(Signal::from_number(libc::SIGURG).unwrap());
                ("set -- $(grep SigIgn /proc/self/status); echo $((0x$2 >> 22 & 1))", "0")
            }
            It::KillOnParentExit => {
                unix.kill_on_parent_exit = Some(parent_exit());
                ("", "")
            }
            It::StdRules => {
                unix.std_rules = true;
                ("set -- $(grep SigBlk /proc/self/status); echo $((0x$2 >> 11 & 1))", "1")
            }
            It::PreExec => {
                let closure = || {
                    // SAFETY: a number.
                    unsafe { libc::umask(0o12) };
                    Ok(())
                };
                // SAFETY: a system call.
                unsafe { unix.pre_exec.push(Box::new(closure)) };
                ("umask", "0012")
            }
            It::CreationFlags => {
                windows.creation_flags = 1;
                ("", "")
            }
            It::ShowWindow => {
                windows.show_window = Some(0);
                ("", "")
            }
            It::RawArg => {
                windows.raw_args.push(0);
                ("", "")
            }
            It::ForceQuotes => {
                windows.force_quotes = true;
                ("", "")
            }
            It::NoWindow => {
                windows.no_window = true;
                ("", "")
            }
            It::BreakawayFromJob => {
                windows.breakaway_from_job = true;
                ("", "")
            }
            It::AllowBreakaway => {
                windows.allow_breakaway = true;
                ("", "")
            }
        };
        values.windows = (windows != WindowsOptions::default()).then_some(windows);
        let nice = rustix::process::getpriority_process(None).unwrap().to_string();
        let script = script.replace("NICE", &nice).replace("LEADER", &leader.0.pid().to_string());
        (script, output)
    }

    /// Returns each option and the name of its setter.
    fn all() -> Vec<(StartOption, &'static str)> {
        let (env, stdout, values) = (EnvSnapshot::take(), memory(), Values::default());
        let plan = values.plan(&env, &stdout, None);
        let unix = unix_list(&plan).into_iter();
        let entries = unix.chain(windows_list(&WindowsOptions::default()));
        let checked = entries.map(|(option, setter, is_set)| {
            assert!(!is_set, "{setter}");
            (option, setter)
        });
        checked.collect()
    }

    #[test]
    fn every_option_has_one_name_and_an_answer_of_each_way() {
        let all = all();
        for (index, (option, setter)) in all.iter().enumerate() {
            assert!(all[..index].iter().all(|it| it.0 != *option && it.1 != *setter), "{setter}");
            // A slot has no more than its system.
            for (way, slot) in [(Way::Linux, Way::LinuxSlot), (Way::Windows, Way::WindowsSlot)] {
                let refusal = option.refusal(way);
                assert!(refusal.is_none() || option.refusal(slot) == refusal, "{setter}");
            }
            let has = |way| option.refusal(way).is_none();
            assert!(has(Way::Linux) || has(Way::Windows), "{setter}");
            assert_eq!(option.refusal(Way::Linux), option.refusal(Way::Macos), "{setter}");
        }
    }

    #[test]
    fn every_option_is_done_or_refused_by_name_by_this_process_and_in_a_slot() {
        // To be ignored is its default too, so other tests do not notice.
        // SAFETY: not a function.
        unsafe { libc::signal(libc::SIGURG, libc::SIG_IGN) };
        let leader = Leader::start();
        for (option, setter) in all() {
            answers(option, setter, (Way::Linux, None), &leader);
        }
        let Ok(slot) = TreeSlot::new(drop) else {
            return skipped(Need::Supervisor, "there are no slots");
        };
        for (option, setter) in all() {
            answers(option, setter, (Way::LinuxSlot, Some(&slot)), &leader);
        }
    }

    fn answers(
        option: StartOption,
        setter: &str,
        (way, slot): (Way, Option<&TreeSlot>),
        leader: &Leader,
    ) {
        let mut values = Values::default();
        let (script, expected) = set(option, &mut values, leader);
        values.args = vec!["-c".into(), script.into()];
        let (env, stdout) = (EnvSnapshot::take(), memory());
        let plan = values.plan(&env, &stdout, slot);
        assert!(
            values.windows.is_some()
                || unix_list(&plan).iter().any(|entry| entry.0 == option && entry.2),
            "{setter} is not set"
        );
        let start = || {
            let mut set = empty_set();
            // SAFETY: a live set and a signal.
            unsafe { libc::sigaddset(&raw mut set, libc::SIGUSR2) };
            // SAFETY: live sets. The thread ends with the start.
            unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
            begin(&plan).and_then(|begun| begun.finish(&plan))
        };
        let started = std::thread::scope(|scope| scope.spawn(start).join().unwrap());
        match (option.refusal(way), started) {
            (None, Ok(child)) => {
                let ended = child.wait().unwrap();
                assert_eq!(text(stdout), expected, "{setter}, {way:?}: {ended:?}");
                drop(child);
                let (without, stdout) = (Values::default(), memory());
                let plan = without.plan(&env, &stdout, slot);
                let plan = Plan { args: &values.args, ..plan };
                let child = begin(&plan).and_then(|begun| begun.finish(&plan)).unwrap();
                child.wait().unwrap();
                let is_shown = expected.is_empty() || text(stdout) != expected;
                assert!(is_shown, "{setter}, {way:?}: the shell says the same without it");
            }
            (None, Err(error))
                if option == StartOption::Limits
                    && error.source.kind() == std::io::ErrorKind::Unsupported =>
            {
                skipped(Need::TreeLimits, error);
            }
            (None, Err(error)) => {
                // A right that only root has.
                let is_root = rustix::process::geteuid().is_root();
                let is_denied = error.source.raw_os_error() == Some(libc::EPERM);
                assert!(is_denied && !is_root, "{setter}, {way:?}: {error}");
            }
            (Some(_), Ok(_)) => panic!("{setter} is neither done nor refused: {way:?}"),
            (Some(refusal), Err(error)) => {
                let named = format!("`{setter}`");
                assert!(error.source.to_string().contains(&named), "{setter}, {way:?}: {error}");
                let is_typed = match refusal {
                    Refusal::NotInSlot => {
                        matches!(error.step, Step::Check(BadInput::NotInSlot(it)) if it == setter)
                    }
                    Refusal::IsFor(_) => error.source.kind() == std::io::ErrorKind::Unsupported,
                };
                assert!(is_typed, "{setter}, {way:?}: {error:?}");
            }
        }
    }
}
