//! Attributes of a new child: the handles that it inherits, and its job.

use std::ffi::c_void;
use std::io;
use std::marker::PhantomData;
use std::mem;
use std::ptr;

use windows_sys::Win32::Foundation::HANDLE;
use windows_sys::Win32::System::Console::HPCON;
use windows_sys::Win32::System::Threading::{
    DeleteProcThreadAttributeList, InitializeProcThreadAttributeList, LPPROC_THREAD_ATTRIBUTE_LIST,
    PROC_THREAD_ATTRIBUTE_HANDLE_LIST, PROC_THREAD_ATTRIBUTE_JOB_LIST,
    PROC_THREAD_ATTRIBUTE_PSEUDOCONSOLE, UpdateProcThreadAttribute,
};

/// A list of attributes. It refers to their values, which therefore outlive it.
#[derive(Debug)]
pub(super) struct AttributeList<'a> {
    /// Words, so that it is aligned for any attribute.
    list: Vec<u64>,
    values: PhantomData<&'a [HANDLE]>,
}

impl<'a> AttributeList<'a> {
    /// Creates a list with that much room. For no attributes there is no list, because the system's
    /// treatment of an empty one is not documented.
    pub(super) fn with_room_for(count: u32) -> io::Result<AttributeList<'a>> {
        if count == 0 {
            return Ok(AttributeList { list: Vec::new(), values: PhantomData });
        }
        let mut bytes = 0;
        // SAFETY: without a list the call returns the required size. It is expected to fail.
        let _ =
            unsafe { InitializeProcThreadAttributeList(ptr::null_mut(), count, 0, &raw mut bytes) };
        let mut list = vec![0_u64; bytes.div_ceil(mem::size_of::<u64>())];
        // SAFETY: a live buffer of the size that was returned.
        let made = unsafe {
            InitializeProcThreadAttributeList(list.as_mut_ptr().cast(), count, 0, &raw mut bytes)
        };
        if made == 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(AttributeList { list, values: PhantomData })
    }

    /// Sets the only handles that the child inherits. Each must be inheritable, and none listed twice.
    pub(super) fn set_handles(&mut self, handles: &'a [HANDLE]) -> io::Result<()> {
        self.set(
            PROC_THREAD_ATTRIBUTE_HANDLE_LIST,
            handles.as_ptr().cast(),
            mem::size_of_val(handles),
        )
    }

    /// Sets the jobs that the child is in before it runs.
    pub(super) fn set_jobs(&mut self, jobs: &'a [HANDLE]) -> io::Result<()> {
        self.set(PROC_THREAD_ATTRIBUTE_JOB_LIST, jobs.as_ptr().cast(), mem::size_of_val(jobs))
    }

    /// Sets the console of the child. It must be open until the child has been started.
    pub(super) fn set_console(&mut self, console: HPCON) -> io::Result<()> {
        // The value is the console itself, not a pointer to it.
        let value = ptr::without_provenance(console as usize);
        self.set(PROC_THREAD_ATTRIBUTE_PSEUDOCONSOLE, value, mem::size_of::<HPCON>())
    }

    fn set(&mut self, attribute: u32, value: *const c_void, bytes: usize) -> io::Result<()> {
        // SAFETY: a list that was initialised with room for it; a value that outlives the list: the callers borrow it
        // for that long, or keep the console open.
        let set = unsafe {
            UpdateProcThreadAttribute(
                self.as_ptr(),
                0,
                attribute as usize,
                value,
                bytes,
                ptr::null_mut(),
                ptr::null(),
            )
        };
        if set == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Returns the list; NULL if there is none.
    pub(super) fn as_ptr(&mut self) -> LPPROC_THREAD_ATTRIBUTE_LIST {
        if self.list.is_empty() { ptr::null_mut() } else { self.list.as_mut_ptr().cast() }
    }
}

impl Drop for AttributeList<'_> {
    fn drop(&mut self) {
        let list = self.as_ptr();
        if !list.is_null() {
            // SAFETY: a list that was initialised, and that is not used any more.
            unsafe { DeleteProcThreadAttributeList(list) };
        }
    }
}
