//! Flags of `CreateProcessW`, and the options that Windows lacks.

use windows_sys::Win32::System::Console::GetConsoleCP;
use windows_sys::Win32::System::Threading::{
    CREATE_BREAKAWAY_FROM_JOB, CREATE_NEW_CONSOLE, CREATE_NEW_PROCESS_GROUP, CREATE_NO_WINDOW,
    CREATE_SUSPENDED, CREATE_UNICODE_ENVIRONMENT, DETACHED_PROCESS, EXTENDED_STARTUPINFO_PRESENT,
};

use crate::process::spawn::options::{self, Way};
use crate::process::spawn::{BadInput, ChildStdio, Group, Plan, SpawnError};

/// The flags that give a child a console of its own, or none.
const OTHER_CONSOLE: u32 = CREATE_NO_WINDOW | CREATE_NEW_CONSOLE | DETACHED_PROCESS;

/// The flags and the console for the start of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StartFlags {
    pub(super) creation: u32,
    /// True if the child has this process's console.
    pub(super) shares_console: bool,
}

impl StartFlags {
    pub(super) fn of(plan: &Plan<'_>) -> StartFlags {
        // SAFETY: no arguments. 0: there is no console.
        let have_console = unsafe { GetConsoleCP() } != 0;
        StartFlags::with(plan, have_console)
    }

    fn with(plan: &Plan<'_>, have_console: bool) -> StartFlags {
        let has_own_console = plan.terminal.is_some();
        let mut flags = CREATE_UNICODE_ENVIRONMENT;
        let mut no_window = false;
        if let Some(windows) = plan.windows {
            // This library decides if there are attributes.
            flags |= windows.creation_flags & !EXTENDED_STARTUPINFO_PRESENT;
            no_window = windows.no_window;
            if windows.breakaway_from_job {
                flags |= CREATE_BREAKAWAY_FROM_JOB;
            }
        }
        match plan.unix.group {
            Group::Same | Group::Join(_) => {}
            // On a console of its own, Ctrl-C has to reach it, and a new group would ignore that.
            _ if has_own_console => {}
            Group::Own => flags |= CREATE_NEW_PROCESS_GROUP,
            // Not without a console: the system would open a window for each console program that the child
            // starts.
            Group::Session => {
                flags |= CREATE_NEW_PROCESS_GROUP;
                no_window = true;
            }
        }
        let redirected = |stdio: &ChildStdio<'_>| matches!(stdio, ChildStdio::Handle(_));
        // The system would open a window for a console program, and it would stay empty.
        let is_empty = !have_console && !has_own_console && plan.stdio.iter().all(redirected);
        if no_window || (is_empty && flags & OTHER_CONSOLE == 0) {
            flags |= CREATE_NO_WINDOW;
        }
        let shares_console = have_console && !has_own_console && flags & OTHER_CONSOLE == 0;
        StartFlags { creation: flags, shares_console }
    }
}

/// Refuses the options that Windows lacks.
pub(super) fn check(plan: &Plan<'_>) -> Result<(), SpawnError> {
    if plan.windows.is_some_and(|windows| windows.creation_flags & CREATE_SUSPENDED != 0) {
        // The handle of its first thread is closed, so the child would never run.
        return Err(SpawnError::bad(BadInput::Suspended));
    }
    options::check(plan, Way::Windows)
}

#[cfg(test)]
mod tests {
    use crate::base::handle::Handle;
    use crate::process::spawn::{Step, UnixOptions, WindowsOptions};

    use super::super::tests::plan;
    use super::*;

    #[test]
    fn a_console_window_that_would_be_empty_is_not_opened() {
        let defaults = UnixOptions::default();
        let null: Handle = crate::base::stdio::null().unwrap();
        let null = ChildStdio::Handle(&null);
        let some = Plan { stdio: [null, null, ChildStdio::Inherit], ..plan("x", &[], &defaults) };
        let all = Plan { stdio: [null; 3], ..some };
        let flag =
            |plan: &Plan<'_>, have| StartFlags::with(plan, have).creation & CREATE_NO_WINDOW != 0;
        assert!(flag(&all, false));
        assert!(!flag(&all, true), "it shares the console");
        assert!(!flag(&some, false), "something would be seen in it");
        let own = WindowsOptions { creation_flags: CREATE_NEW_CONSOLE, ..Default::default() };
        assert!(!flag(&Plan { windows: Some(&own), ..all }, false), "it was asked for");
        let none = WindowsOptions { no_window: true, ..Default::default() };
        assert!(flag(&Plan { windows: Some(&none), ..some }, true));
    }

    #[test]
    fn a_detached_child_has_a_console_without_a_window() {
        let session = UnixOptions { group: Group::Session, ..UnixOptions::default() };
        let flags = StartFlags::with(&plan("x", &[], &session), true).creation;
        let wanted = CREATE_NO_WINDOW | CREATE_NEW_PROCESS_GROUP;
        assert_eq!(flags & (wanted | DETACHED_PROCESS), wanted);
    }

    #[test]
    fn only_children_on_this_console_can_be_asked_to_end() {
        let own = UnixOptions { group: Group::Own, ..UnixOptions::default() };
        let session = UnixOptions { group: Group::Session, ..UnixOptions::default() };
        let shares = |unix, have| StartFlags::with(&plan("x", &[], unix), have).shares_console;
        assert!(shares(&own, true));
        assert!(!shares(&own, false));
        assert!(!shares(&session, true));
    }

    #[test]
    fn create_suspended_is_refused() {
        let defaults = UnixOptions::default();
        let suspended = WindowsOptions { creation_flags: CREATE_SUSPENDED, ..Default::default() };
        let plan = Plan { windows: Some(&suspended), ..plan("x", &[], &defaults) };
        assert_eq!(check(&plan).unwrap_err().step, Step::Check(BadInput::Suspended));
    }

    #[test]
    fn unix_options_are_refused_by_the_name_of_the_setter() {
        let refused = |unix: &UnixOptions| {
            let error = check(&plan("x", &[], unix)).unwrap_err();
            assert_eq!(error.source.kind(), std::io::ErrorKind::Unsupported);
            error.source.to_string()
        };
        let defaults = UnixOptions::default();
        assert!(check(&plan("x", &[], &defaults)).is_ok());
        let umask = UnixOptions { umask: Some(0), ..defaults.clone() };
        assert_eq!(refused(&umask), "`umask` is for Unix only");
        let join = UnixOptions { group: Group::Join(1), ..defaults };
        assert_eq!(refused(&join), "`process_group` is for Unix only");
    }
}
