//! This process as a whole: the dialogs that its failures open, its variable `PWD`, and the arguments that it can pass
//! on. And the version of Windows.

use std::path::{Component, Path, PathBuf};

#[cfg(all(windows, any(feature = "process", feature = "host")))]
pub(crate) use version::system_version;
#[cfg(all(windows, feature = "host"))]
pub(crate) use version::wine_version;

/// Keeps this process, and the children that it starts from now on, from opening a dialog when a library is missing, a
/// program crashes, or a disk is not there: the process ends or gets an error instead of waiting for somebody.
///
/// For a program, not for a library: it changes the whole process.
///
/// # Platform
/// Windows: `SetErrorMode`, which children inherit. Unix: nothing; there are no such dialogs.
#[doc(alias = "SetErrorMode")]
pub fn disable_dialogs() {
    #[cfg(windows)]
    dialogs::disable_dialogs();
}

/// Returns the value of `PWD` for a program that starts in that directory: absolute, without dots. `None`: this process
/// has no `PWD` (Windows), or the directory cannot be found, which the start reports.
///
/// A path with `..` after a name is looked at, and a look may wait for a mount that does not answer.
///
/// A shell takes it for its directory if it names the same one; other programs show it.
#[must_use]
pub fn pwd_of(dir: &Path) -> Option<PathBuf> {
    match pwd_without_look(dir)? {
        Shown::Path(shown) => Some(shown),
        Shown::Unknown => dir.canonicalize().ok(),
    }
}

/// The value of `PWD` that is known without a look at the directory.
#[derive(Debug, PartialEq, Eq)]
pub enum Shown {
    /// The directory.
    Path(PathBuf),
    /// It has `..` after a name, which may be a link. The `PWD` of this process is wrong there.
    Unknown,
}

/// Returns the same as [`pwd_of`], but never waits.
#[must_use]
pub fn pwd_without_look(dir: &Path) -> Option<Shown> {
    std::env::var_os("PWD")?;
    let mut shown = match dir.is_absolute() {
        true => PathBuf::new(),
        false => std::env::current_dir().ok()?,
    };
    let mut has_name = false;
    for part in dir.components() {
        match part {
            Component::CurDir => {}
            // The system has no links in the current directory.
            Component::ParentDir if !has_name => drop(shown.pop()),
            Component::ParentDir => return Some(Shown::Unknown),
            _ => {
                has_name |= matches!(part, Component::Normal(_));
                shown.push(part);
            }
        }
    }
    Some(Shown::Path(shown))
}

/// Returns the most bytes that the arguments of a program may have which starts with the environment of this process,
/// each with the byte that ends it.
///
/// # Platform
/// Unix: `sysconf(_SC_ARG_MAX)` without the environment and 2 KiB, which POSIX leaves for changes to it. Windows:
/// 30,000, of the 32,767 characters of a command line with its quotes.
#[doc(alias = "ARG_MAX")]
#[must_use]
pub fn argument_bytes() -> usize {
    #[cfg(windows)]
    {
        30_000
    }
    #[cfg(unix)]
    {
        const HEADROOM: usize = 2048;
        // The least that POSIX allows a system to have.
        const LEAST: usize = 4096;
        // SAFETY: no pointers.
        let most = unsafe { libc::sysconf(libc::_SC_ARG_MAX) };
        // Two more bytes a variable: the equals sign, and the end. Without a limit, all that can be counted.
        let environment = std::env::vars_os().map(|(name, value)| name.len() + value.len() + 2);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        most.saturating_sub(environment.sum::<usize>() + HEADROOM).max(LEAST)
    }
}

#[cfg(windows)]
mod dialogs {
    use windows_sys::Win32::System::Diagnostics::Debug::{
        GetErrorMode, SEM_FAILCRITICALERRORS, SEM_NOGPFAULTERRORBOX, SEM_NOOPENFILEERRORBOX,
        SetErrorMode,
    };

    const NO_DIALOGS: u32 = SEM_FAILCRITICALERRORS | SEM_NOGPFAULTERRORBOX | SEM_NOOPENFILEERRORBOX;

    pub(super) fn disable_dialogs() {
        // SAFETY: no arguments.
        let mode = unsafe { GetErrorMode() };
        // SAFETY: a number.
        unsafe { SetErrorMode(mode | NO_DIALOGS) };
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn no_dialog_opens_afterwards() {
            super::super::disable_dialogs();
            // SAFETY: no arguments.
            assert_eq!(unsafe { GetErrorMode() } & NO_DIALOGS, NO_DIALOGS);
        }
    }
}

#[cfg(all(windows, any(feature = "process", feature = "host")))]
mod version {
    use std::ffi::{CStr, c_char};
    use std::mem;

    use windows_sys::Wdk::System::SystemServices::RtlGetVersion;
    use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleW, GetProcAddress};
    use windows_sys::Win32::System::SystemInformation::OSVERSIONINFOW;
    use windows_sys::w;

    use crate::base::handle::size_of_u32;

    /// Returns the name and the version of the system.
    pub(crate) fn system_version() -> String {
        let size = size_of_u32::<OSVERSIONINFOW>();
        let mut version = OSVERSIONINFOW { dwOSVersionInfoSize: size, ..Default::default() };
        // Ignored: it cannot fail. SAFETY: a live struct that states its size.
        let _ = unsafe { RtlGetVersion(&raw mut version) };
        let (major, minor) = (version.dwMajorVersion, version.dwMinorVersion);
        let windows = format!("Windows {major}.{minor}.{}", version.dwBuildNumber);
        match wine_version() {
            Some(version) => format!("{windows}, Wine {version}"),
            None => windows,
        }
    }

    /// Returns the version of Wine, or `None` on Windows itself.
    pub(crate) fn wine_version() -> Option<String> {
        // SAFETY: a name that ends with a zero.
        let ntdll = unsafe { GetModuleHandleW(w!("ntdll.dll")) };
        // SAFETY: a module that stays loaded, and a name that ends with a zero.
        let found = unsafe { GetProcAddress(ntdll, c"wine_get_version".as_ptr().cast()) }?;
        type Version = unsafe extern "C" fn() -> *const c_char;
        // SAFETY: the type of this function, wherever it exists.
        let version: Version = unsafe { mem::transmute(found) };
        // SAFETY: no arguments.
        let version = unsafe { version() };
        // SAFETY: a static string of Wine's.
        Some(unsafe { CStr::from_ptr(version) }.to_string_lossy().into_owned())
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn only_a_name_before_dots_needs_a_look() {
        // The value of every shell; without one, nothing is to be shown.
        if std::env::var_os("PWD").is_none() {
            return assert_eq!(pwd_without_look(Path::new("/usr")), None);
        }
        let here = std::env::current_dir().unwrap();
        let above = here.parent().unwrap();
        let path = |path: &Path| Some(Shown::Path(path.to_owned()));
        assert_eq!(pwd_without_look(Path::new("./a//b/.")), path(&here.join("a/b")));
        assert_eq!(pwd_without_look(Path::new("../b")), path(&above.join("b")));
        assert_eq!(
            pwd_without_look(Path::new("/../no such folder")),
            path(Path::new("/no such folder"))
        );
        assert_eq!(pwd_without_look(Path::new("no such folder/../b")), Some(Shown::Unknown));
    }
}
