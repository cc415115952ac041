//! Processes that were started with a variable in their environment.

use std::io;

/// Returns the numbers of the processes, this one excluded, that were started with that variable set to that value.
///
/// A process that has changed its own environment since then still counts. For one that executes its program right now
/// this waits, up to 1 second: it has no environment for a moment. Of other users, only processes count
/// whose environment this process may read. A number may be another process's by the time it is used: open it first
/// ([`Opened::open`](super::open::Opened::open)), then ask [`has_variable`] again.
///
/// # Platform
/// Linux: `/proc/PID/environ`. macOS: `KERN_PROCARGS2`, in which a program that the system protects (`/bin/sleep`) has
/// no environment. Windows: `Unsupported`.
///
/// # Errors
/// `Unsupported`: this system does not show environments, or `/proc` is not that of the own pid namespace. Other
/// errors: there is no room to read them all.
pub fn processes_with_variable(name: &str, value: &str) -> io::Result<Vec<u32>> {
    imp::processes_with_variable(name, value)
}

/// Returns true if the process with that number was started with that variable set to that value.
///
/// # Platform
/// As for [`processes_with_variable`]; false where that is `Unsupported`.
///
/// # Errors
/// There is no room to read its environment. That says nothing about the process.
pub fn has_variable(pid: u32, name: &str, value: &str) -> io::Result<bool> {
    imp::has_variable(pid, name, value)
}

/// Returns the numbers of the processes, this one excluded, that have begun to exit and may still hold files and locks.
///
/// The kernel frees the memory of such a process first, which takes long if it is large. Its environment is gone by
/// then, so [`processes_with_variable`] does not return it.
///
/// # Platform
/// As for [`processes_with_variable`].
///
/// # Errors
/// As for [`processes_with_variable`].
pub fn exiting_processes() -> io::Result<Vec<u32>> {
    imp::exiting_processes()
}

#[cfg(target_os = "linux")]
mod imp {
    use std::io;
    use std::time::{Duration, Instant};

    use rustix::io::Errno;

    use crate::process::procfs;

    pub(super) fn processes_with_variable(name: &str, value: &str) -> io::Result<Vec<u32>> {
        all_but_this(|pid| has_variable(pid, name, value))
    }

    /// Returns the processes that the question is true of. One that cannot be read for lack of room is not left out:
    /// that is an error.
    fn all_but_this(question: impl Fn(u32) -> io::Result<bool>) -> io::Result<Vec<u32>> {
        if !procfs::proc_is_ours()? {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let own = std::process::id();
        let mut found = Vec::new();
        for pid in procfs::pids()? {
            if pid != own && question(pid)? {
                found.push(pid);
            }
        }
        Ok(found)
    }

    /// Reads a file of a process; `None` if it is gone, or may not be read.
    fn read(pid: u32, file: &str) -> io::Result<Option<Vec<u8>>> {
        match procfs::read(&format!("/proc/{pid}/{file}")) {
            Ok(text) => Ok(Some(text)),
            Err(Errno::NOENT | Errno::SRCH | Errno::ACCESS | Errno::PERM) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// `PF_EXITING` of the kernel, in the flags of `/proc/PID/stat`.
    const EXITING: u64 = 0x4;
    /// `PF_KTHREAD`: a thread of the kernel, which has no environment.
    const KERNEL_THREAD: u64 = 0x20_0000;

    pub(super) fn exiting_processes() -> io::Result<Vec<u32>> {
        all_but_this(|pid| Ok(stat(pid)?.is_some_and(|stat| stat.is_exiting())))
    }

    /// The facts of `/proc/PID/stat` about a process that has not ended.
    struct Stat {
        flags: u64,
        /// The address of the program. execve(2) stores it after the environment. 0: not yet; 1: it is not shown.
        start_code: u64,
    }

    impl Stat {
        fn is_exiting(&self) -> bool {
            self.flags & EXITING != 0
        }

        /// Returns true if its environment is in its memory, or if it has none any more.
        fn has_environment_in_place(&self) -> bool {
            self.start_code > 1 || self.flags & (EXITING | KERNEL_THREAD) != 0
        }
    }

    /// Returns `None` for a process that has ended and is not reaped: it holds nothing.
    fn stat(pid: u32) -> io::Result<Option<Stat>> {
        Ok(read(pid, "stat")?.as_deref().and_then(parse))
    }

    fn parse(stat: &[u8]) -> Option<Stat> {
        let text = String::from_utf8_lossy(stat);
        // The name may have blanks and parentheses. proc(5) counts from 1; the state is field 3.
        let fields: Vec<_> = text.rsplit(')').next()?.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse().ok();
        let has_ended = matches!(fields.first(), None | Some(&("Z" | "X")));
        (!has_ended).then_some(Stat { flags: number(9)?, start_code: number(26)? })
    }

    /// The time that a process may be in the middle of execve(2): its file may be on a network.
    const EXEC_WAIT: Duration = Duration::from_secs(1);

    pub(super) fn has_variable(pid: u32, name: &str, value: &str) -> io::Result<bool> {
        let until = Instant::now() + EXEC_WAIT;
        loop {
            let stat = stat(pid)?;
            let Some(environment) = read(pid, "environ")? else { return Ok(false) };
            // In the middle of execve(2) the memory is the new program's, and has no environment yet.
            let is_whole =
                !environment.is_empty() || stat.is_none_or(|it| it.has_environment_in_place());
            if is_whole || Instant::now() >= until {
                return Ok(environment.split(|byte| *byte == 0).any(|it| is_set(it, name, value)));
            }
            std::thread::park_timeout(Duration::from_micros(100));
        }
    }

    fn is_set(variable: &[u8], name: &str, value: &str) -> bool {
        let rest = variable.strip_prefix(name.as_bytes());
        rest.and_then(|rest| rest.strip_prefix(b"=")) == Some(value.as_bytes())
    }
}

#[cfg(target_os = "macos")]
mod imp {
    use std::io;

    use super::procargs;
    use crate::process::libproc::{ProcessInfo, all_pids};

    pub(super) fn processes_with_variable(name: &str, value: &str) -> io::Result<Vec<u32>> {
        let own = std::process::id();
        let mut found = Vec::new();
        for pid in all_pids() {
            if pid != own && has_variable(pid, name, value)? {
                found.push(pid);
            }
        }
        Ok(found)
    }

    pub(super) fn exiting_processes() -> io::Result<Vec<u32>> {
        let exits = |state: ProcessInfo| state.is_ending() && !state.has_ended();
        let is_exiting = |pid: &u32| ProcessInfo::of(*pid).is_some_and(exits);
        Ok(all_pids().into_iter().filter(is_exiting).collect())
    }

    pub(super) fn has_variable(pid: u32, name: &str, value: &str) -> io::Result<bool> {
        let block = procargs::read(pid)?;
        Ok(block.is_some_and(|block| procargs::has_variable(&block, name, value)))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// This program, which is not protected.
        #[test]
        fn a_process_is_found_by_a_variable_that_it_was_started_with() {
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            child.args(["--list", "no such test"]).env("PIPEWRIGHT_FIND_ME", "of this test");
            child.stdout(std::process::Stdio::piped());
            let mut child = child.spawn().unwrap();
            // It has not been reaped, but may have ended: then its block is gone.
            let found = processes_with_variable("PIPEWRIGHT_FIND_ME", "of this test").unwrap();
            assert!(found.is_empty() || found == [child.id()], "{found:?}");
            child.wait().unwrap();
        }
    }
}

#[cfg(windows)]
mod imp {
    use std::io;

    pub(super) fn processes_with_variable(_name: &str, _value: &str) -> io::Result<Vec<u32>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn exiting_processes() -> io::Result<Vec<u32>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn has_variable(_pid: u32, _name: &str, _value: &str) -> io::Result<bool> {
        Ok(false)
    }
}

// The arguments and the environment of a process, as macOS gives them (`KERN_PROCARGS2`).
#[cfg(any(target_os = "macos", test))]
mod procargs {
    #[cfg(target_os = "macos")]
    use std::io;

    /// The most that the kernel gives: `ARG_MAX`, and the number in front.
    #[cfg(target_os = "macos")]
    const MOST_BYTES: usize = (1 << 20) + 4096;

    /// Reads the block of a process; `None` if it is gone, has ended, or may not be read.
    #[cfg(target_os = "macos")]
    pub(super) fn read(pid: u32) -> io::Result<Option<Vec<u8>>> {
        let Ok(pid) = libc::c_int::try_from(pid) else { return Ok(None) };
        let mut block = Vec::<u8>::new();
        block.try_reserve_exact(MOST_BYTES).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mut length = MOST_BYTES;
        let mut name = [libc::CTL_KERN, libc::KERN_PROCARGS2, pid];
        // SAFETY: a name of three numbers, a live buffer and its size, and no new value.
        let result = unsafe {
            let (name, block) = (name.as_mut_ptr(), block.as_mut_ptr().cast());
            libc::sysctl(name, 3, block, &raw mut length, std::ptr::null_mut(), 0)
        };
        if result != 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::ENOMEM) => Err(error),
                _ => Ok(None),
            };
        }
        // SAFETY: the call has written that many bytes, which is no more than there was room for.
        unsafe { block.set_len(length.min(MOST_BYTES)) };
        Ok(Some(block))
    }

    /// Returns true if a block has that variable with that value: the number of arguments, the path, zeroes, the
    /// arguments, the environment.
    pub(super) fn has_variable(block: &[u8], name: &str, value: &str) -> bool {
        let Some((count, rest)) = block.split_first_chunk::<4>() else { return false };
        let Ok(count) = usize::try_from(i32::from_ne_bytes(*count)) else { return false };
        let path_ends = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
        let rest = rest.get(path_ends..).unwrap_or_default();
        let begins = rest.iter().position(|byte| *byte != 0).unwrap_or(rest.len());
        let rest = rest.get(begins..).unwrap_or_default();
        let environment = rest.split(|byte| *byte == 0).skip(count);
        // An empty string is its end. Others of the system's own follow.
        let is_it = |variable: &[u8]| {
            let rest = variable.strip_prefix(name.as_bytes());
            rest.and_then(|rest| rest.strip_prefix(b"=")) == Some(value.as_bytes())
        };
        environment.take_while(|variable| !variable.is_empty()).any(is_it)
    }

    #[cfg(test)]
    mod tests {
        use super::has_variable;

        fn block(arguments: &[&str], environment: &[&str]) -> Vec<u8> {
            let mut block = (arguments.len() as i32).to_ne_bytes().to_vec();
            block.extend_from_slice(b"/usr/local/bin/job\0\0\0\0\0");
            for text in [arguments, environment].concat() {
                block.extend_from_slice(text.as_bytes());
                block.push(0);
            }
            block.extend_from_slice(b"\0executable_path=/usr/local/bin/job\0AFTER=1\0");
            block
        }

        #[test]
        fn only_the_environment_counts() {
            let block = block(&["job", "A=argument", ""], &["A=1", "B=2=3", "C="]);
            for (name, value, has) in [
                ("A", "1", true),
                ("B", "2=3", true),
                ("C", "", true),
                ("A", "argument", false),
                ("A", "", false),
                ("B", "2", false),
                ("AFTER", "1", false),
                ("", "", false),
            ] {
                assert_eq!(has_variable(&block, name, value), has, "{name}={value}");
            }
        }

        #[test]
        fn a_block_of_a_protected_process_or_a_broken_one_has_no_variable() {
            assert!(!has_variable(&block(&["job"], &[]), "A", "1"));
            let whole = block(&["job", "x"], &["A=1"]);
            for end in 0..whole.len() {
                let cut = has_variable(&whole[..end], "A", "1");
                assert!(!cut || end >= whole.len() - 45, "{end}");
            }
            assert!(!has_variable(&[0xff; 64], "A", "1"));
            assert!(!has_variable(&[0; 64], "A", "1"));
        }
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use std::io::Read as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_is_found_by_a_variable_that_it_was_started_with() {
        let value = format!("of-{}", std::process::id());
        let find = || processes_with_variable("PIPEWRIGHT_FIND_ME", &value).unwrap();
        assert_eq!(find(), []);
        let mut child = Command::new("sh")
            .args(["-c", "unset PIPEWRIGHT_FIND_ME; echo up; read -r line"])
            .env("PIPEWRIGHT_FIND_ME", &value)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 3]).unwrap();
        assert_eq!(find(), [child.id()]);
        assert!(!has_variable(child.id(), "PIPEWRIGHT_FIND_ME", "of").unwrap());
        assert!(!has_variable(child.id(), "PIPEWRIGHT_FIND", &value).unwrap());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(find(), []);
    }

    #[test]
    fn a_process_in_the_middle_of_execve_is_found() {
        let value = format!("executing-{}", std::process::id());
        let environ = |pid: u32| std::fs::read(format!("/proc/{pid}/environ")).unwrap();
        let own = environ(std::process::id());
        for _ in 0..200 {
            let mut child = Command::new("cat")
                .env("PIPEWRIGHT_FIND_ME", &value)
                .stdin(Stdio::piped())
                .spawn()
                .unwrap();
            // std returns when execve(2) is about to leave the memory shared with this process.
            while environ(child.id()) == own {}
            let is_found = has_variable(child.id(), "PIPEWRIGHT_FIND_ME", &value).unwrap();
            drop(child.stdin.take());
            child.wait().unwrap();
            assert!(is_found);
        }
    }
}
