//! The facilities of the system that processes, workers and files use.

use std::io;

/// One facility of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facility {
    /// Its name, as in the manual.
    pub name: &'static str,
    /// The state that was found.
    pub state: State,
    /// The uses of it.
    pub used_for: &'static str,
    /// The loss without it. Empty for a figure.
    pub without: &'static str,
    /// The call that it needs, and the version of the system that brought it. Empty for a figure.
    pub needs: &'static str,
}

/// The state of a facility.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// It works. The text is a detail, such as a path, or empty.
    Available(String),
    /// It does not work, for this reason.
    Missing(String),
    /// It is a value, such as a limit, and cannot be missing.
    Value(String),
}

/// Tries every facility that this family of crates can use.
///
/// # Platform
/// Everywhere: makes the calls themselves, each in a way that changes nothing.
#[must_use]
pub fn facilities() -> Vec<Facility> {
    imp::facilities()
}

/// The texts of a facility.
struct About {
    used_for: &'static str,
    without: &'static str,
    needs: &'static str,
}

fn facility(name: &'static str, found: io::Result<String>, about: About) -> Facility {
    let state = match found {
        Ok(detail) => State::Available(detail),
        Err(error) => State::Missing(error.to_string()),
    };
    let About { used_for, without, needs } = about;
    Facility { name, state, used_for, without, needs }
}

fn value(name: &'static str, text: String, used_for: &'static str) -> Facility {
    Facility { name, state: State::Value(text), used_for, without: "", needs: "" }
}

/// Returns the number of handles that this process may have open.
#[cfg(unix)]
fn open_files() -> String {
    limit_text(rustix::process::Resource::Nofile)
}

/// Returns the number of processes that this user may have.
#[cfg(unix)]
fn processes() -> String {
    limit_text(rustix::process::Resource::Nproc)
}

#[cfg(unix)]
fn limit_text(resource: rustix::process::Resource) -> String {
    let limit = rustix::process::getrlimit(resource).current;
    limit.map_or_else(|| "no limit".to_owned(), |limit| limit.to_string())
}

// One harmless call for each facility.
#[cfg(target_os = "linux")]
mod imp {
    use std::os::fd::AsFd as _;
    use std::path::PathBuf;
    use std::{fs, io};

    use super::{About, Facility, facility, open_files, processes, value};
    use crate::base::test_hooks::{Forced, is_forced};
    use crate::process::contain::linux::{limits, own_cgroup_path};
    use crate::process::limits::LimitKind;
    use crate::process::pidfd::{self, SavedStatus};

    pub(super) fn facilities() -> Vec<Facility> {
        vec![
            facility(
                "clone3",
                clone3(),
                About {
                    used_for: "starting children",
                    without: "signal handlers are reset one by one",
                    needs: "clone3 with CLONE_CLEAR_SIGHAND (Linux 5.5)",
                },
            ),
            facility(
                "pidfd",
                pidfd(),
                About {
                    used_for: "waiting and signalling without the risk of a reused pid",
                    without: "a thread for each child waits for its exit",
                    needs: "pidfd_open (Linux 5.3)",
                },
            ),
            facility(
                "pidfd info",
                pidfd_info(),
                About {
                    used_for: "the exit status of a child that other code reaped",
                    without: "the status is lost, which is an error",
                    needs: "ioctl PIDFD_GET_INFO with PIDFD_INFO_EXIT (Linux 6.15)",
                },
            ),
            facility(
                "pidfd group signal",
                pidfd_group(),
                About {
                    used_for: "signalling a group whose leader is gone",
                    without: "the leader is kept unreaped",
                    needs: "pidfd_send_signal with PIDFD_SIGNAL_PROCESS_GROUP (Linux 6.9)",
                },
            ),
            facility(
                "close_range",
                close_range(),
                About {
                    used_for: "closing the handles that a child does not inherit",
                    without: "/proc/self/fd is read",
                    needs: "close_range with CLOSE_RANGE_CLOEXEC (Linux 5.11)",
                },
            ),
            facility(
                "proc children",
                proc_children(),
                About {
                    used_for: "finding the descendants of a child",
                    without: "a kill reaches only the child and its group",
                    needs: "/proc/PID/task/TID/children (Linux 3.5, CONFIG_PROC_CHILDREN)",
                },
            ),
            facility(
                "cgroup v2",
                cgroup(),
                About {
                    used_for: "containing a whole tree",
                    without: "a supervisor contains it",
                    needs: "a cgroup v2 that this user may write to, and clone3 with CLONE_INTO_CGROUP (Linux 5.7)",
                },
            ),
            facility(
                "cgroup.kill",
                cgroup_kill(),
                About {
                    used_for: "killing a cgroup at once",
                    without: "it is frozen, and its processes are killed one by one",
                    needs: "the file cgroup.kill (Linux 5.14)",
                },
            ),
            limit(LimitKind::Memory),
            limit(LimitKind::Swap),
            limit(LimitKind::Cpu),
            limit(LimitKind::Pids),
            facility(
                "supervisor",
                crate::process::start::try_supervisor().map(|()| String::new()),
                About {
                    used_for: "containing a tree without privileges, and ending it with its program",
                    without: "a process group contains it",
                    needs: "memfd_create and execveat of the result (Linux 3.19), pidfd_open (Linux 5.3)",
                },
            ),
            facility(
                "memfd",
                memfd(),
                About {
                    used_for: "the supervisor's program; shared memory between host and workers",
                    without: "no supervisor, and messages go through a socket",
                    needs: "memfd_create (Linux 3.17)",
                },
            ),
            facility(
                "io_uring",
                io_uring(),
                About {
                    used_for: "asynchronous disk I/O",
                    without: "Linux AIO or threads, see pipewright disk",
                    needs: "io_uring_setup (Linux 5.1), and kernel.io_uring_disabled = 0",
                },
            ),
            value(
                "open handles",
                open_files(),
                "the number of handles that this process may have open",
            ),
            value("processes", processes(), "the number of processes that this user may have"),
            value(
                "pipe size",
                file_text("/proc/sys/fs/pipe-max-size"),
                "the largest pipe in bytes; a stream that fills its pipe gets 1 MiB",
            ),
            value(
                "kernel",
                file_text("/proc/sys/kernel/osrelease"),
                "5.10 is the oldest supported version",
            ),
        ]
    }

    /// Makes a group with a limit, and removes it.
    fn limit(kind: LimitKind) -> Facility {
        let (name, used_for, needs) = match kind {
            LimitKind::Memory => {
                ("memory limit", "limiting the memory of a tree", "the controller memory")
            }
            LimitKind::Swap => (
                "swap limit",
                "limiting the swap of a tree",
                "the controller memory, with swap accounting",
            ),
            LimitKind::Cpu => {
                ("cpu limit", "limiting the CPU time of a tree", "the controller cpu")
            }
            _ => {
                ("pids limit", "limiting the number of processes of a tree", "the controller pids")
            }
        };
        let without = "a command with this limit does not start, unless it may run without";
        let found = limits::probe(kind).map_err(io::Error::other);
        facility(name, found, About { used_for, without, needs })
    }

    fn forced_off(switch: Forced) -> io::Result<()> {
        if is_forced(switch) { Err(io::Error::other("left out of this build")) } else { Ok(()) }
    }

    /// Judges the result of a call that is deliberately invalid: a kernel that knows the call returns
    /// `complaint`.
    fn is_known(result: libc::c_long, complaint: i32) -> io::Result<String> {
        if result >= 0 {
            return Ok(String::new());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() == Some(complaint) { Ok(String::new()) } else { Err(error) }
    }

    fn clone3() -> io::Result<String> {
        forced_off(Forced::NoClone3)?;
        // A struct of size 0: EINVAL if the kernel knows the call (clone(2)).
        // SAFETY: the kernel reads nothing from a struct of size 0.
        is_known(
            unsafe { libc::syscall(libc::SYS_clone3, std::ptr::null::<u8>(), 0) },
            libc::EINVAL,
        )
    }

    fn own_pidfd() -> io::Result<std::os::fd::OwnedFd> {
        forced_off(Forced::NoPidfd)?;
        let flags = rustix::process::PidfdFlags::empty();
        Ok(rustix::process::pidfd_open(rustix::process::getpid(), flags)?)
    }

    fn pidfd() -> io::Result<String> {
        own_pidfd().map(|_| String::new())
    }

    /// Queries the exit status of a child that has been reaped.
    #[expect(
        clippy::disallowed_methods,
        reason = "a child that only exits, and is reaped as other code would"
    )]
    fn pidfd_info() -> io::Result<String> {
        forced_off(Forced::NoPidfd)?;
        // SAFETY: the child makes one call, which any child of a program with threads may make.
        let child = match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()),
            // SAFETY: as above.
            0 => unsafe { libc::_exit(0) },
            child => child,
        };
        let pidfd = pidfd::open_pidfd(child).and_then(|it| it.ok_or(rustix::io::Errno::SRCH));
        // SAFETY: a child of this process, whose status is not wanted.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        match pidfd::saved_status(pidfd?.as_fd()) {
            SavedStatus::Known(_) => Ok(String::new()),
            SavedStatus::NotReaped => Err(io::Error::other("the kernel keeps no exit status")),
            SavedStatus::Unavailable => Err(io::Error::last_os_error()),
        }
    }

    fn pidfd_group() -> io::Result<String> {
        let pidfd = own_pidfd()?;
        // Signal 0 is not delivered. ESRCH: the flag is known, and this process leads no group.
        // SAFETY: numbers and no siginfo.
        let result = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                std::os::fd::AsRawFd::as_raw_fd(&pidfd),
                0,
                std::ptr::null::<libc::siginfo_t>(),
                4,
            )
        };
        is_known(result, libc::ESRCH)
    }

    fn close_range() -> io::Result<String> {
        forced_off(Forced::NoCloseRange)?;
        // The largest possible number is not open, so no handle is marked.
        let last = libc::c_uint::MAX;
        // SAFETY: numbers.
        let result =
            unsafe { libc::syscall(libc::SYS_close_range, last, last, libc::CLOSE_RANGE_CLOEXEC) };
        is_known(result, 0)
    }

    fn proc_children() -> io::Result<String> {
        fs::read_to_string("/proc/thread-self/children").map(|_| String::new())
    }

    /// Checks that a cgroup could be made below the cgroup of this process, and returns its path.
    fn cgroup() -> io::Result<String> {
        let path = own_cgroup()?;
        rustix::fs::access(&path, rustix::fs::Access::WRITE_OK)?;
        Ok(path.display().to_string())
    }

    /// Looks for the file in the cgroup of this process, or in one below it. The root of all has none, and perhaps no
    /// other in it: then the version of the kernel decides.
    fn cgroup_kill() -> io::Result<String> {
        const SINCE: (u32, u32) = (5, 14);
        let own = own_cgroup()?;
        let is_root = !own.join("cgroup.type").exists();
        let below = fs::read_dir(&own)?.filter_map(Result::ok).map(|entry| entry.path());
        let found = std::iter::once(own).chain(below).any(|dir| dir.join("cgroup.kill").exists());
        if found || (is_root && kernel_version().is_some_and(|version| version >= SINCE)) {
            Ok(String::new())
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    /// Returns the major and the minor version of the kernel.
    fn kernel_version() -> Option<(u32, u32)> {
        let release = file_text("/proc/sys/kernel/osrelease");
        let mut numbers = release.split(['.', '-']);
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }

    fn own_cgroup() -> io::Result<PathBuf> {
        forced_off(Forced::NoCgroup)?;
        own_cgroup_path().ok_or_else(|| io::Error::other("not mounted"))
    }

    fn memfd() -> io::Result<String> {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        rustix::fs::memfd_create("pipewright-probe", flags)?;
        Ok(String::new())
    }

    fn io_uring() -> io::Result<String> {
        let disabled = file_text("/proc/sys/kernel/io_uring_disabled");
        // No struct at all: EFAULT if the call is known and allowed.
        // SAFETY: the kernel checks the pointer, and returns an error for null.
        let result = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, std::ptr::null::<u8>()) };
        is_known(result, libc::EFAULT).map_err(|error| {
            io::Error::new(error.kind(), format!("{error}; kernel.io_uring_disabled is {disabled}"))
        })
    }

    fn file_text(path: &str) -> String {
        fs::read_to_string(path)
            .map_or_else(|error| error.to_string(), |text| text.trim().to_owned())
    }
}

// One harmless call for each facility.
#[cfg(target_os = "macos")]
mod imp {
    use std::io;

    use rustix::fs::Access;

    use super::{About, Facility, facility, open_files, processes, value};
    use crate::process::kqueue::ExitWatch;
    use crate::process::libproc::StartTime;

    pub(super) fn facilities() -> Vec<Facility> {
        vec![
            facility(
                "kqueue",
                kqueue(),
                About {
                    used_for: "waiting for the end of a process",
                    without: "the process is polled",
                    needs: "kevent with EVFILT_PROC",
                },
            ),
            facility(
                "libproc",
                libproc_works(),
                About {
                    used_for: "finding the descendants of a child",
                    without: "a kill reaches only the child and its group",
                    needs: "proc_pidinfo (macOS 10.5)",
                },
            ),
            facility(
                "guard",
                shell(),
                About {
                    used_for: "ending a child with its program: /bin/sh waits for the end of the program",
                    without: "no child can be ended with its program",
                    needs: "/bin/sh",
                },
            ),
            value(
                "open handles",
                open_files(),
                "the number of handles that this process may have open",
            ),
            value("processes", processes(), "the number of processes that this user may have"),
            value(
                "kernel",
                kernel(),
                "the oldest supported version is macOS 11 (Darwin 20); on x86-64, macOS 10.15 (Darwin 19)",
            ),
        ]
    }

    fn kqueue() -> io::Result<String> {
        ExitWatch::of(std::process::id()).map(|_| String::new())
    }

    fn libproc_works() -> io::Result<String> {
        let own = StartTime::of(std::process::id());
        own.map(|_| String::new()).ok_or_else(io::Error::last_os_error)
    }

    fn shell() -> io::Result<String> {
        rustix::fs::access("/bin/sh", Access::EXEC_OK)?;
        Ok("/bin/sh".to_owned())
    }

    fn kernel() -> String {
        // SAFETY: `utsname` consists of byte arrays, for which all zeroes is a valid value.
        let mut names: libc::utsname = unsafe { std::mem::zeroed() };
        // SAFETY: a live struct that the call fills.
        if unsafe { libc::uname(&raw mut names) } != 0 {
            return io::Error::last_os_error().to_string();
        }
        let release = names.release.map(|byte| byte as u8);
        let release = release.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(release).into_owned()
    }
}

// One harmless call for each facility.
#[cfg(windows)]
mod imp {
    use std::os::windows::io::{FromRawHandle, OwnedHandle};
    use std::{io, mem, ptr};

    use windows_sys::Win32::System::Console::GetConsoleProcessList;
    use windows_sys::Win32::System::JobObjects::CreateJobObjectW;
    use windows_sys::Win32::System::Threading::{
        CREATE_WAITABLE_TIMER_HIGH_RESOLUTION, CreateWaitableTimerExW,
        DeleteProcThreadAttributeList, InitializeProcThreadAttributeList,
        PROC_THREAD_ATTRIBUTE_HANDLE_LIST, PROC_THREAD_ATTRIBUTE_JOB_LIST, TIMER_ALL_ACCESS,
        UpdateProcThreadAttribute,
    };

    use super::{About, Facility, facility, value};
    use crate::base::pipe::{self, Mode, PipeOptions};
    use crate::base::this_process::system_version;
    use crate::process::contain::windows::{Job, is_in_job, limit as limit_job};
    use crate::process::limits::TreeLimits;

    /// Makes a job with the limit.
    fn limit(name: &'static str, limits: TreeLimits) -> Facility {
        let found = Job::for_tree(false).and_then(|job| {
            limit_job(&job, limits).map(|_| "job".to_owned()).map_err(io::Error::other)
        });
        let about = About {
            used_for: "limiting the resources of a tree",
            without: "a command with this limit does not start, unless it may run without",
            needs: "a job that keeps the limit (Wine does not)",
        };
        facility(name, found, about)
    }

    pub(super) fn facilities() -> Vec<Facility> {
        vec![
            facility(
                "handle list",
                attribute(PROC_THREAD_ATTRIBUTE_HANDLE_LIST),
                About {
                    used_for: "starting children that inherit only the listed handles",
                    without: "no child can be started",
                    needs: "PROC_THREAD_ATTRIBUTE_HANDLE_LIST (Windows Vista)",
                },
            ),
            facility(
                "job object",
                job().map(|_| String::new()),
                About {
                    used_for: "containing a whole tree, killing it at once, and ending it with its program",
                    without: "no tree is contained",
                    needs: "CreateJobObject",
                },
            ),
            facility(
                "job list",
                attribute(PROC_THREAD_ATTRIBUTE_JOB_LIST),
                About {
                    used_for: "starting children inside their job",
                    without: "no tree is contained",
                    needs: "PROC_THREAD_ATTRIBUTE_JOB_LIST (Windows 10)",
                },
            ),
            limit("memory limit", TreeLimits::new().memory_max(1 << 40)),
            limit("cpu limit", TreeLimits::new().cpu_max(0.5)),
            limit("pids limit", TreeLimits::new().pids_max(1 << 20)),
            facility(
                "overlapped pipe",
                overlapped_pipe(),
                About {
                    used_for: "reading both streams of a child on one thread",
                    without: "nothing is captured",
                    needs: "CreateNamedPipe with FILE_FLAG_OVERLAPPED",
                },
            ),
            facility(
                "precise timer",
                precise_timer(),
                About {
                    used_for: "waits of less than a clock tick",
                    without: "they take up to 16 ms",
                    needs: "CREATE_WAITABLE_TIMER_HIGH_RESOLUTION (Windows 10 1803)",
                },
            ),
            facility(
                "console",
                console(),
                About {
                    used_for: "asking a child to end, with Ctrl-Break",
                    without: "a stop is a kill",
                    needs: "a console",
                },
            ),
            value(
                "inside a job",
                inside_a_job(),
                "a job around this process holds its children too",
            ),
            value("open handles", count_text(), "the number of handles that this process has open"),
            value("system", system_version(), "10 is the oldest supported Windows"),
        ]
    }

    /// Checks that a process can be created with that attribute. Makes the list and does not use it.
    fn attribute(which: u32) -> io::Result<String> {
        // Enough for a list with one attribute, with the required alignment.
        let mut list = [0_usize; 32];
        let mut size = mem::size_of_val(&list);
        let raw = list.as_mut_ptr().cast();
        // SAFETY: memory of that size.
        if unsafe { InitializeProcThreadAttributeList(raw, 1, 0, &raw mut size) } == 0 {
            return Err(io::Error::last_os_error());
        }
        let handle = job()?;
        // SAFETY: an initialised list with room for one attribute, and a live value. No call uses the list
        // afterwards.
        let known = unsafe {
            let (value, size) = ((&raw const handle).cast(), mem::size_of::<OwnedHandle>());
            let no_old = ptr::null_mut();
            UpdateProcThreadAttribute(raw, 0, which as usize, value, size, no_old, ptr::null())
        };
        let error = io::Error::last_os_error();
        // SAFETY: a list that was initialised.
        unsafe { DeleteProcThreadAttributeList(raw) };
        if known == 0 { Err(error) } else { Ok(String::new()) }
    }

    fn job() -> io::Result<OwnedHandle> {
        // SAFETY: no attributes and no name.
        let job = unsafe { CreateJobObjectW(ptr::null(), ptr::null()) };
        if job.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: made by the call above, and owned nowhere else.
        Ok(unsafe { OwnedHandle::from_raw_handle(job) })
    }

    fn overlapped_pipe() -> io::Result<String> {
        pipe::pair(PipeOptions { read: Mode::Async, ..PipeOptions::default() })?;
        Ok(String::new())
    }

    fn precise_timer() -> io::Result<String> {
        let how = CREATE_WAITABLE_TIMER_HIGH_RESOLUTION;
        // SAFETY: no attributes and no name.
        let timer =
            unsafe { CreateWaitableTimerExW(ptr::null(), ptr::null(), how, TIMER_ALL_ACCESS) };
        if timer.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: made by the call above, and owned nowhere else.
        drop(unsafe { OwnedHandle::from_raw_handle(timer) });
        Ok(String::new())
    }

    fn console() -> io::Result<String> {
        let mut one = 0;
        // SAFETY: room for one; the call fills in nothing if there are more.
        match unsafe { GetConsoleProcessList(&raw mut one, 1) } {
            0 => Err(io::Error::last_os_error()),
            count => Ok(format!("shared by {count}")),
        }
    }

    fn inside_a_job() -> String {
        match is_in_job() {
            Ok(true) => "yes".to_owned(),
            Ok(false) => "no".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    fn count_text() -> String {
        crate::base::handle::own_handle_count()
            .map_or_else(|error| error.to_string(), |count| count.to_string())
    }
}
