//! Distinguishes this process from a fork of it.
//!
//! A fork has our statics, but neither our threads nor the mappings that are excluded from it. The
//! process id alone is not enough: in another pid namespace a fork may have ours.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicPtr, Ordering};

#[cfg(all(target_os = "linux", not(miri)))]
mod imp {
    use std::ptr;
    use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    /// A page that is all zeroes in a fork (`MADV_WIPEONFORK`, Linux 4.14). After one failed
    /// attempt this stays [`NO_PAGE`]: a process whose number changed would look like a fork.
    static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
    /// Stands for a missing page, always zero: no memory, or an emulator does not know the advice.
    static NO_PAGE: AtomicU64 = AtomicU64::new(0);
    /// The number of the latest process in this line of forks.
    static LAST: AtomicU64 = AtomicU64::new(0);

    #[inline]
    pub(super) fn current() -> u64 {
        let page = PAGE.load(Ordering::Acquire);
        // SAFETY: null, a static, or the start of a mapping that is never unmapped.
        match unsafe { page.as_ref() }.map(|word| word.load(Ordering::Relaxed)) {
            Some(number) if number != 0 => number,
            _ => number_this_process(),
        }
    }

    #[cold]
    fn number_this_process() -> u64 {
        let page = page(&PAGE, make_page);
        if ptr::eq(page, &NO_PAGE) {
            // The process id is the best remaining answer.
            return u64::from(std::process::id());
        }
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        // Another thread of this process may have stored its number first.
        match page.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => number,
            Err(theirs) => theirs,
        }
    }

    /// Returns the existing page, or makes it; [`NO_PAGE`] if that fails.
    fn page(
        place: &AtomicPtr<AtomicU64>,
        make: impl FnOnce() -> rustix::io::Result<*mut AtomicU64>,
    ) -> &'static AtomicU64 {
        let mut page = place.load(Ordering::Acquire);
        if page.is_null() {
            let (none, made) = (ptr::null_mut(), make());
            let new = made.unwrap_or((&raw const NO_PAGE).cast_mut());
            page = match place.compare_exchange(none, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => new,
                Err(theirs) => {
                    if let Ok(made) = made {
                        // Ignored: unmapping an existing page cannot fail.
                        // SAFETY: mapped by this thread, which has shared it with no other.
                        let _ = unsafe { munmap(made.cast(), bytes()) };
                    }
                    theirs
                }
            };
        }
        // SAFETY: a static, or the start of a mapping that is never unmapped.
        unsafe { &*page }
    }

    fn make_page() -> rustix::io::Result<*mut AtomicU64> {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let page = unsafe { mmap_anonymous(ptr::null_mut(), bytes(), rights, MapFlags::PRIVATE) }?;
        // SAFETY: the mapping made above; the advice changes no byte in this process.
        if let Err(error) = unsafe { madvise(page, bytes(), Advice::LinuxWipeOnFork) } {
            // SAFETY: as above, and no reference to it exists.
            let _ = unsafe { munmap(page, bytes()) };
            return Err(error);
        }
        Ok(page.cast())
    }

    fn bytes() -> usize {
        crate::base::memory::page_bytes()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_process_without_a_page_keeps_its_number() {
            let place = AtomicPtr::new(ptr::null_mut());
            assert!(ptr::eq(page(&place, || Err(rustix::io::Errno::NOMEM)), &NO_PAGE));
            assert!(ptr::eq(page(&place, make_page), &NO_PAGE), "its number has changed");
            let place = AtomicPtr::new(ptr::null_mut());
            let made = page(&place, make_page);
            assert!(!ptr::eq(made, &NO_PAGE) && ptr::eq(page(&place, make_page), made));
        }
    }
}

#[cfg(all(unix, not(all(target_os = "linux", not(miri)))))]
mod imp {
    /// Returns the process id: macOS has no such page. Its C library caches the id, so this is no
    /// system call.
    #[inline]
    pub(super) fn current() -> u64 {
        u64::from(std::process::id())
    }
}

#[cfg(windows)]
mod imp {
    /// Returns a constant: Windows has no fork.
    pub(super) fn current() -> u64 {
        0
    }
}

/// The process in which a value was made.
///
/// # Platform
/// Linux: a page that a fork finds zeroed (`MADV_WIPEONFORK`). macOS: the process id. Windows: has
/// no fork.
///
/// ```
/// # use pipewright_os::base::generation::Generation;
/// let made_in = Generation::current();
/// assert!(made_in.is_current());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation(u64);

impl Generation {
    /// Returns the current process.
    #[inline]
    #[must_use]
    pub fn current() -> Generation {
        Generation(imp::current())
    }

    /// Returns a number that differs from those of all forks of this process.
    #[inline]
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// Returns true in the process that this value came from, and false in a fork of it.
    #[inline]
    #[must_use]
    pub fn is_current(self) -> bool {
        self == Generation::current()
    }
}

/// A value that acts in the process that made it alone: a fork of that forgets its copy instead of dropping it. Threads
/// that the drop would wait for, locks, files, peers and children are the parent's. Handles in it stay open until the
/// fork ends.
///
/// ```
/// # use pipewright_os::base::generation::AtHome;
/// let mut list = AtHome::new(vec![1]);
/// list.push(2);
/// assert!(list.is_at_home() && *list == [1, 2]);
/// ```
#[derive(Debug)]
pub struct AtHome<T> {
    value: ManuallyDrop<T>,
    made_in: Generation,
}

impl<T> AtHome<T> {
    /// Wraps a value of this process.
    #[must_use]
    pub fn new(value: T) -> AtHome<T> {
        AtHome { value: ManuallyDrop::new(value), made_in: Generation::current() }
    }

    /// Returns the value, which is dropped as usual from then on.
    #[must_use]
    pub fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: nothing uses or drops it after this.
        unsafe { ManuallyDrop::take(&mut this.value) }
    }

    /// Returns true in the process that made it, and false in a fork of that.
    #[must_use]
    pub fn is_at_home(&self) -> bool {
        self.made_in.is_current()
    }
}

impl<T> Deref for AtHome<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for AtHome<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for AtHome<T> {
    fn drop(&mut self) {
        if self.is_at_home() {
            // SAFETY: nobody uses it after this.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

/// A value of which each process has its own. A fork makes a new one, even if another thread held a
/// lock of ours at the time of the fork.
///
/// ```
/// # use pipewright_os::base::generation::PerProcess;
/// use std::sync::Mutex;
/// static LIST: PerProcess<Mutex<Vec<u32>>> = PerProcess::new(|| Mutex::new(Vec::new()));
/// LIST.get().lock().unwrap().push(1);
/// assert_eq!(*LIST.get().lock().unwrap(), [1]);
/// ```
#[derive(Debug)]
pub struct PerProcess<T: 'static> {
    made: AtomicPtr<(Generation, T)>,
    make: fn() -> T,
}

impl<T: Send + Sync + 'static> PerProcess<T> {
    /// Stores the function that makes the value when a process first needs it.
    #[must_use]
    pub const fn new(make: fn() -> T) -> PerProcess<T> {
        PerProcess { made: AtomicPtr::new(std::ptr::null_mut()), make }
    }

    /// Returns the value of this process. It is never dropped.
    pub fn get(&self) -> &'static T {
        let current = Generation::current();
        let mut now = self.made.load(Ordering::Acquire);
        loop {
            // SAFETY: null, or a box leaked below.
            let known = unsafe { now.as_ref() };
            if let Some((_, value)) = known.filter(|(made_in, _)| *made_in == current) {
                return value;
            }
            let new = Box::into_raw(Box::new((current, (self.make)())));
            match self.made.compare_exchange(now, new, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: allocated above, and leaked from here on.
                Ok(_) => return unsafe { &(*new).1 },
                Err(theirs) => {
                    // SAFETY: allocated above, and shared with no other thread.
                    drop(unsafe { Box::from_raw(new) });
                    now = theirs;
                }
            }
        }
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
pub(crate) mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicU32;

    use super::*;

    /// Runs `question` in a fork of this process and returns its answer. It must not panic.
    #[expect(clippy::disallowed_methods, reason = "what a fork finds is the point")]
    pub(crate) fn in_a_fork(question: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child evaluates the question and exits without returning. It takes no lock
        // that another thread may hold except the allocator's, which glibc and musl keep usable.
        match unsafe { libc::fork() } {
            0 => {
                let answer = question();
                // SAFETY: an integer argument.
                unsafe { libc::_exit(i32::from(!answer)) }
            }
            child => {
                assert!(child > 0, "{}", std::io::Error::last_os_error());
                let mut status = 0;
                // SAFETY: a child of this process, and a live integer.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                status == 0
            }
        }
    }

    #[test]
    fn a_fork_and_a_fork_of_it_are_other_processes() {
        let current = Generation::current();
        assert!(current.is_current() && Generation::current() == current);
        let child_differs = in_a_fork(|| {
            let child = Generation::current();
            let both = child != current && child.is_current() && !current.is_current();
            both && in_a_fork(|| !child.is_current() && !current.is_current())
        });
        assert!(child_differs);
        assert!(current.is_current());
    }

    #[test]
    fn a_fork_makes_values_of_its_own_even_if_a_lock_is_held() {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        static VALUE: PerProcess<Mutex<u32>> =
            PerProcess::new(|| Mutex::new(COUNT.fetch_add(1, Ordering::Relaxed)));
        let held = VALUE.get().lock().unwrap();
        assert_eq!(*held, 0);
        assert!(in_a_fork(|| VALUE.get().try_lock().is_ok_and(|value| *value == 1)));
        assert!(std::ptr::eq(VALUE.get(), VALUE.get()));
    }
}
