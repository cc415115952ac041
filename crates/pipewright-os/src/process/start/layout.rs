//! The memory that a child of Unix reads: its paths, words and variables, numbers of handles, closures, and steps as
//! numbers.
//!
//! The child may not allocate, because it shares the memory of a process whose other threads may be inside the
//! allocator. So everything that it will use is in place before it exists. The strings, as `execve(2)` takes them, are
//! in two allocations.

use std::ffi::{OsStr, OsString, c_char};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, io};

use super::imp::{FORK, Fork};
use super::{
    BadInput, Credentials, Env, Plan, Search, SpawnError, Step, UnixOptions, check_values, plan,
};
use crate::base::handle::Handle;
use crate::process::nolibc::step;

/// The directories that the system searches without `PATH` (confstr(3), `_CS_PATH`).
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// NUL-terminated strings, and the arrays of pointers to them.
#[derive(Debug)]
pub(super) struct Layout {
    /// The bytes that the pointers refer to; never changed once the pointers exist.
    bytes: Vec<u8>,
    /// argv, NULL, envp, NULL, candidates, NULL.
    pointers: Vec<*const c_char>,
    envp: usize,
    candidates: usize,
    current_dir: Option<usize>,
    chroot: Option<usize>,
}

// SAFETY: the pointers refer to `bytes`, which moves along with them and is never changed.
unsafe impl Send for Layout {}
// SAFETY: as above; nothing can be changed through a shared reference.
unsafe impl Sync for Layout {}

/// Refuses a name that no directory can have, as execvp(3) does: each lookup of it fails, and the name would count as
/// not found.
fn check_name(program: &OsStr) -> Result<(), SpawnError> {
    const NAME_MAX: usize = 255;
    if program.len() > NAME_MAX && !is_path(program) {
        let error = io::Error::from_raw_os_error(libc::ENAMETOOLONG);
        return Err(SpawnError::new(Step::Exec, error));
    }
    Ok(())
}

impl Layout {
    pub(super) fn new(plan: &Plan<'_>) -> Result<Layout, SpawnError> {
        check_values(plan)?;
        check_name(plan.program)?;
        if plan.windows.is_some() {
            plan::check_windows_options(plan)?;
        }
        #[cfg(target_os = "macos")]
        plan::check_options(plan, plan::Way::Macos)?;
        let mut strings = Strings::with_room_for(plan);
        let program = plan.program.as_bytes();

        strings.add(&[plan.arg0.unwrap_or(plan.program).as_bytes()]);
        for arg in plan.args {
            strings.add(&[arg.as_bytes()]);
        }
        strings.end_array();

        let envp = strings.offsets.len();
        for (name, value) in variables(plan.env) {
            strings.add(&[name.as_bytes(), b"=", value.as_bytes()]);
        }
        strings.end_array();

        let candidates = strings.offsets.len();
        if is_path(plan.program) {
            strings.add(&[program]);
        } else {
            for directory in search_entries(plan.search) {
                match directory {
                    // An empty entry is the working directory (execvp(3)).
                    b"" => strings.add(&[b"./", program]),
                    directory => strings.add(&[directory, b"/", program]),
                }
            }
        }
        strings.end_array();

        let current_dir = plan.current_dir.map(|dir| strings.add_bare(dir.as_os_str()));
        let chroot = plan.unix.chroot.as_ref().map(|dir| strings.add_bare(dir.as_os_str()));
        let (bytes, pointers) = strings.into_parts();
        Ok(Layout { bytes, pointers, envp, candidates, current_dir, chroot })
    }

    /// Returns the argument vector, ended by NULL.
    pub(super) fn argv(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }

    /// Returns the environment, ended by NULL.
    pub(super) fn envp(&self) -> *const *const c_char {
        self.pointers[self.envp..].as_ptr()
    }

    /// Returns the paths to try, and then NULL.
    #[cfg(target_os = "linux")]
    pub(super) fn candidate_list(&self) -> &[*const c_char] {
        &self.pointers[self.candidates..]
    }

    /// Returns the paths to try, ended by NULL.
    #[cfg(any(target_os = "macos", test))]
    pub(super) fn candidates(&self) -> *const *const c_char {
        self.pointers[self.candidates..].as_ptr()
    }

    pub(super) fn current_dir(&self) -> *const c_char {
        self.bare(self.current_dir)
    }

    pub(super) fn chroot(&self) -> *const c_char {
        self.bare(self.chroot)
    }

    /// Returns the strings, each ended by NUL.
    #[cfg(target_os = "linux")]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the number of all pointers: the arguments, the environment and the paths, each list ended by NULL.
    #[cfg(target_os = "linux")]
    pub(super) fn pointer_count(&self) -> usize {
        self.pointers.len()
    }

    /// Returns the index of the first variable in the pointers.
    #[cfg(target_os = "linux")]
    pub(super) fn envp_index(&self) -> usize {
        self.envp
    }

    /// Returns the index of the first path in the pointers.
    #[cfg(target_os = "linux")]
    pub(super) fn candidates_index(&self) -> usize {
        self.candidates
    }

    /// Returns the offset of the working directory in the strings.
    #[cfg(target_os = "linux")]
    pub(super) fn current_dir_offset(&self) -> Option<usize> {
        self.current_dir
    }

    /// Returns the pointers, for strings that begin at that address.
    #[cfg(target_os = "linux")]
    pub(super) fn pointers_at(&self, strings: u64) -> impl Iterator<Item = u64> {
        let first = self.bytes.as_ptr() as usize;
        self.pointers.iter().map(move |pointer| match *pointer as usize {
            0 => 0,
            place => strings + (place - first) as u64,
        })
    }

    fn bare(&self, at: Option<usize>) -> *const c_char {
        at.map_or(std::ptr::null(), |at| self.bytes[at..].as_ptr().cast())
    }
}

pub(super) fn is_path(program: &OsStr) -> bool {
    program.as_bytes().contains(&b'/')
}

fn variables(env: Env<'_>) -> &[(OsString, OsString)] {
    match env {
        Env::Inherit(own) => own.variables(),
        Env::Exactly(variables) => variables,
    }
}

pub(super) fn search_dirs<'a>(plan: &Plan<'a>) -> impl Iterator<Item = PathBuf> + use<'a> {
    search_entries(plan.search).map(|dir| PathBuf::from(OsStr::from_bytes(dir)))
}

/// Returns the directories of a search path, in order.
fn search_entries(search: Search<'_>) -> impl Iterator<Item = &[u8]> {
    let path = match search {
        Search::Path(path) => path.as_bytes(),
        Search::Default => DEFAULT_PATH.as_bytes(),
    };
    path.split(|byte| *byte == b':')
}

/// Strings put end to end. Pointers are made once the strings can no longer move.
struct Strings {
    bytes: Vec<u8>,
    /// The start of each string; [`END`] ends an array. Turned into pointers in place.
    offsets: Vec<usize>,
}

const END: usize = usize::MAX;

impl Strings {
    fn with_room_for(plan: &Plan<'_>) -> Strings {
        let program = plan.program.len();
        let mut bytes = plan.arg0.map_or(program, OsStr::len) + 1;
        let mut pointers = 1 + plan.args.len() + 1;
        bytes += plan.args.iter().map(|arg| arg.len() + 1).sum::<usize>();
        let variables = variables(plan.env);
        bytes += variables.iter().map(|(name, value)| name.len() + value.len() + 2).sum::<usize>();
        pointers += variables.len() + 1;
        if is_path(plan.program) {
            bytes += program + 1;
            pointers += 2;
        } else {
            for directory in search_entries(plan.search) {
                bytes += directory.len().max(1) + program + 2;
                pointers += 1;
            }
            pointers += 1;
        }
        let dirs = [plan.current_dir, plan.unix.chroot.as_deref()];
        bytes += dirs.iter().flatten().map(|dir| dir.as_os_str().len() + 1).sum::<usize>();
        Strings { bytes: Vec::with_capacity(bytes), offsets: Vec::with_capacity(pointers) }
    }

    #[inline(never)]
    fn add(&mut self, parts: &[&[u8]]) {
        self.offsets.push(self.bytes.len());
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        self.bytes.push(0);
    }

    fn add_bare(&mut self, text: &OsStr) -> usize {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(0);
        at
    }

    fn end_array(&mut self) {
        self.offsets.push(END);
    }

    fn into_parts(self) -> (Vec<u8>, Vec<*const c_char>) {
        let base = self.bytes.as_ptr();
        // Both have one size, so that collecting in place keeps this at two allocations.
        let pointers = self.offsets.into_iter().map(|at| match at {
            END => std::ptr::null(),
            at => base.wrapping_add(at).cast::<c_char>(),
        });
        (self.bytes, pointers.collect())
    }
}

impl UnixOptions {
    /// Returns the treatment of groups that are not set. Otherwise a child of root that only changes its
    /// user would keep root's groups.
    pub(crate) fn unset_groups(&self) -> UnsetGroups {
        match &self.identity {
            Credentials { user: Some(_), groups: None, .. } if self.std_rules => {
                UnsetGroups::DroppedIfPermitted
            }
            Credentials { user: Some(_), groups: None, .. }
                if rustix::process::geteuid().is_root() =>
            {
                UnsetGroups::Dropped
            }
            _ => UnsetGroups::Kept,
        }
    }
}

/// The treatment of supplementary groups that are not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnsetGroups {
    /// They stay.
    Kept,
    /// They are dropped.
    Dropped,
    /// They are dropped if that is permitted.
    DroppedIfPermitted,
}

/// Returns the number of a listed handle in the child.
pub(super) fn number_in_child((handle, number): &(Handle, Option<i32>)) -> RawFd {
    number.unwrap_or(handle.as_raw_fd())
}

/// Checks that no number is used twice, or is that of a standard handle.
pub(super) fn check_numbers(list: &[(Handle, Option<i32>)]) -> Result<(), SpawnError> {
    for (index, entry) in list.iter().enumerate() {
        let to = number_in_child(entry);
        if to <= libc::STDERR_FILENO {
            return Err(SpawnError::bad(BadInput::InheritIsStdio(index)));
        }
        if list.iter().take(index).any(|earlier| number_in_child(earlier) == to) {
            return Err(SpawnError::bad(BadInput::InheritTwice(index)));
        }
    }
    Ok(())
}

/// A closure of `pre_exec`.
pub(crate) type Closure = Box<dyn FnMut() -> io::Result<()> + Send + Sync>;

/// The closures of `pre_exec`, in order; usually none.
///
/// A child that has closures is forked. The first closure adds the code for that by a pointer, so that
/// programs which never add one do not contain it. Clones share the closures.
#[derive(Clone, Default)]
pub struct PreExec(Option<Arc<Hooks>>);

struct Hooks {
    closures: Mutex<Vec<Closure>>,
    fork: Fork,
}

/// The locked closures. They are locked before a fork, so that the child itself holds the lock.
pub(in crate::process::start) struct Locked<'a> {
    pub(in crate::process::start) closures: MutexGuard<'a, Vec<Closure>>,
    #[cfg_attr(target_os = "macos", expect(dead_code, reason = "the code for it is always there"))]
    pub(in crate::process::start) fork: Fork,
}

impl PreExec {
    /// Adds a closure, after the others.
    ///
    /// # Safety
    /// The closure must be fit to run in a forked child of a process with several threads: see
    /// [`std::os::unix::process::CommandExt::pre_exec`].
    pub unsafe fn push(&mut self, closure: Closure) {
        let hooks = self
            .0
            .get_or_insert_with(|| Arc::new(Hooks { closures: Mutex::default(), fork: FORK }));
        hooks.closures.lock().unwrap_or_else(PoisonError::into_inner).push(closure);
    }

    /// Returns true if there is no closure.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().is_none()
    }

    /// Takes the closures out.
    pub(crate) fn take(&self) -> Vec<Closure> {
        self.lock().map(|mut locked| std::mem::take(&mut *locked.closures)).unwrap_or_default()
    }

    /// Locks the closures; `None` if there are none.
    pub(in crate::process::start) fn lock(&self) -> Option<Locked<'_>> {
        let hooks = self.0.as_deref()?;
        let closures = hooks.closures.lock().unwrap_or_else(PoisonError::into_inner);
        (!closures.is_empty()).then_some(Locked { closures, fork: hooks.fork })
    }
}

/// Runs the closures in order, up to the first that fails. Returns its error number, or `EINVAL` if it has
/// none.
pub(in crate::process::start) fn run_closures(closures: &mut [Closure]) -> Result<(), i32> {
    for closure in closures {
        closure().map_err(|error| error.raw_os_error().unwrap_or(libc::EINVAL))?;
    }
    Ok(())
}

/// A guard that aborts when a panic drops it: a forked child must not unwind into the code of its parent.
pub(in crate::process::start) struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        std::process::abort();
    }
}

impl fmt::Debug for PreExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.lock().map_or(0, |locked| locked.closures.len());
        write!(f, "PreExec({count} closures)")
    }
}

#[cfg(any(target_os = "macos", test))]
pub(super) fn number_of(step: Step) -> u32 {
    match step {
        // No child reports the others.
        Step::Check(_) | Step::Create | Step::Breakaway | Step::Confirm => step::CREATE,
        Step::Group => step::GROUP,
        Step::Limit(index) => step::with_index(step::LIMIT, index),
        Step::Umask => step::UMASK,
        Step::Nice => step::NICE,
        Step::Chroot => step::CHROOT,
        Step::Identity => step::IDENTITY,
        Step::CurrentDir => step::CURRENT_DIR,
        Step::Stdio(target) => step::with_index(step::STDIO, usize::from(target)),
        Step::Inherit(index) => step::with_index(step::INHERIT, index),
        Step::CloseOthers => step::CLOSE_OTHERS,
        Step::ParentDeath => step::PARENT_DEATH,
        Step::Exec => step::EXEC,
        Step::Contain => step::CONTAIN,
        Step::PreExec => step::PRE_EXEC,
        Step::Terminal => step::TERMINAL,
        Step::TreeLimits => step::TREE_LIMITS,
    }
}

/// Returns the step of a number.
pub(super) fn step_of(number: u32) -> Step {
    let (step, index) = step::parts(number);
    match step {
        step::GROUP => Step::Group,
        step::LIMIT => Step::Limit(index),
        step::UMASK => Step::Umask,
        step::NICE => Step::Nice,
        step::CHROOT => Step::Chroot,
        step::IDENTITY => Step::Identity,
        step::CURRENT_DIR => Step::CurrentDir,
        step::STDIO => Step::Stdio(index as u8),
        step::INHERIT => Step::Inherit(index),
        step::CLOSE_OTHERS => Step::CloseOthers,
        step::PARENT_DEATH => Step::ParentDeath,
        step::EXEC => Step::Exec,
        step::CONTAIN => Step::Contain,
        step::PRE_EXEC => Step::PreExec,
        step::TERMINAL => Step::Terminal,
        step::TREE_LIMITS => Step::TreeLimits,
        #[cfg(target_os = "linux")]
        step::CONFIRM => Step::Confirm,
        _ => Step::Create,
    }
}

/// Returns the supplementary groups as `setgroups` takes them where the effective group is in the list: the first one
/// becomes the effective one (setgroups(2) of the BSDs), and a place is lost to it unless it is named once only.
#[cfg(any(target_os = "macos", test))]
pub(super) fn with_effective_first(effective: u32, groups: &[u32]) -> Vec<u32> {
    let others = groups.iter().copied().filter(|group| *group != effective);
    std::iter::once(effective).chain(others).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::ffi::CStr;
    use std::path::Path;

    use super::*;
    use crate::process::start::{ChildStdio, EnvSnapshot, Inherit, UnixOptions, WindowsOptions};

    /// Returns the strings of an array that ends with NULL.
    fn texts(array: *const *const c_char) -> Vec<String> {
        let at = |index| {
            // SAFETY: requested one after the other, up to the NULL and not past it.
            let place: *const *const c_char = unsafe { array.add(index) };
            // SAFETY: as above.
            unsafe { *place }
        };
        (0..).map(at).take_while(|text| !text.is_null()).map(text).collect()
    }

    fn text(text: *const c_char) -> String {
        // SAFETY: the layout ends every string with NUL.
        unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
    }

    pub(crate) fn plan<'a>(
        program: &'a str,
        args: &'a [OsString],
        unix: &'a UnixOptions,
    ) -> Plan<'a> {
        Plan {
            program: OsStr::new(program),
            search: Search::Path(OsStr::new("/a::/b c")),
            arg0: None,
            args,
            env: Env::Exactly(&[]),
            current_dir: None,
            stdio: [ChildStdio::Inherit; 3],
            inherit: Inherit::List(&[]),
            contain: None,
            limits: None,
            slot: None,
            foreground: None,
            terminal: None,
            unix,
            windows: None,
        }
    }

    #[test]
    fn layout_has_argv_envp_and_candidates() {
        let args = ["x".into(), "".into(), "long argument".into()];
        let unix = UnixOptions { chroot: Some("/root dir".into()), ..UnixOptions::default() };
        let env = [("A".into(), "1".into()), ("=C:".into(), "".into())];
        let plan = Plan {
            env: Env::Exactly(&env),
            current_dir: Some(Path::new("/cwd")),
            ..plan("cc", &args, &unix)
        };
        let layout = Layout::new(&plan).unwrap();
        assert_eq!(texts(layout.argv()), ["cc", "x", "", "long argument"]);
        assert_eq!(texts(layout.envp()), ["A=1", "=C:="]);
        assert_eq!(texts(layout.candidates()), ["/a/cc", "./cc", "/b c/cc"]);
        assert_eq!(text(layout.current_dir()), "/cwd");
        assert_eq!(text(layout.chroot()), "/root dir");
    }

    #[test]
    fn a_path_is_not_searched_for() {
        let unix = UnixOptions::default();
        let layout = Layout::new(&plan("./cc", &[], &unix)).unwrap();
        assert_eq!(texts(layout.candidates()), ["./cc"]);
        assert!(texts(layout.envp()).is_empty() && layout.current_dir().is_null());
    }

    #[test]
    fn an_inherited_environment_is_laid_out_in_its_order() {
        let unix = UnixOptions::default();
        let own = EnvSnapshot::take();
        let layout = Layout::new(&Plan { env: Env::Inherit(&own), ..plan("cc", &[], &unix) });
        let joined =
            |(name, value)| [name, value].map(|it: OsString| it.into_string().unwrap()).join("=");
        assert_eq!(
            texts(layout.unwrap().envp()),
            std::env::vars_os().map(joined).collect::<Vec<_>>()
        );
    }

    #[test]
    fn no_more_memory_is_reserved_than_needed() {
        let args = ["one".into(), "two".into()];
        let unix = UnixOptions::default();
        let layout = Layout::new(&plan("cc", &args, &unix)).unwrap();
        assert!(layout.bytes.capacity() >= layout.bytes.len());
        assert!(layout.bytes.capacity() <= layout.bytes.len() + 8, "too much was set aside");
        assert_eq!(layout.pointers.capacity(), layout.pointers.len());
    }

    #[test]
    fn nul_bytes_and_bad_names_are_refused() {
        let unix = UnixOptions::default();
        let check = |plan: Plan<'_>| Layout::new(&plan).unwrap_err().to_string();
        assert_eq!(check(plan("", &[], &unix)), "the command is empty");
        assert_eq!(check(plan("a\0b", &[], &unix)), "NUL byte in the program's name");
        let args = ["fine".into(), "\0".into()];
        assert_eq!(check(plan("cc", &args, &unix)), "NUL byte in argument 2");
        for (name, value) in [("", "x"), ("A=B", "x"), ("A", "\0"), ("\0", "")] {
            let env = [(name.into(), value.into())];
            let plan = Plan { env: Env::Exactly(&env), ..plan("cc", &[], &unix) };
            assert!(check(plan).contains("environment variable"), "{name:?}={value:?}");
        }
    }
    #[test]
    fn windows_options_are_refused_by_the_name_of_the_setter() {
        let unix = UnixOptions::default();
        let defaults = WindowsOptions::default();
        let requested = [
            (WindowsOptions { creation_flags: 1, ..defaults.clone() }, "creation_flags"),
            (WindowsOptions { raw_args: vec![0], ..defaults.clone() }, "raw_arg"),
            (WindowsOptions { no_window: true, ..defaults.clone() }, "no_window"),
        ];
        let made = |windows| Layout::new(&Plan { windows, ..plan("cc", &[], &unix) });
        assert!(made(Some(&defaults)).is_ok());
        for (options, name) in &requested {
            let error = made(Some(options)).unwrap_err();
            assert_eq!(error.source.kind(), std::io::ErrorKind::Unsupported);
            assert_eq!(error.source.to_string(), format!("`{name}` is for Windows only"));
        }
    }

    #[test]
    fn steps_round_trip_through_numbers() {
        let indexed = [Step::Limit(3), Step::Stdio(2), Step::Inherit(7)];
        let plain = [
            Step::Create,
            Step::Group,
            Step::Umask,
            Step::Nice,
            Step::Chroot,
            Step::Identity,
            Step::CurrentDir,
            Step::CloseOthers,
            Step::ParentDeath,
            Step::Exec,
            Step::Contain,
            Step::PreExec,
            Step::Terminal,
            Step::TreeLimits,
        ];
        for step in indexed.into_iter().chain(plain) {
            assert_eq!(step_of(number_of(step)), step);
        }
    }

    #[test]
    fn the_effective_group_comes_first_and_once() {
        assert_eq!(with_effective_first(20, &[]), [20]);
        assert_eq!(with_effective_first(20, &[12, 80]), [20, 12, 80]);
        assert_eq!(with_effective_first(20, &[12, 20, 80, 20]), [20, 12, 80]);
    }
}
