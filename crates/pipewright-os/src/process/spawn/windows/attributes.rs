//! What a child is born with: which handles it inherits, and which job it is in.

use std::ffi::c_void;
use std::io;
use std::marker::PhantomData;
use std::mem;
use std::ptr;

use windows_sys::Win32::Foundation::HANDLE;
use windows_sys::Win32::System::Threading::{
    DeleteProcThreadAttributeList, InitializeProcThreadAttributeList, LPPROC_THREAD_ATTRIBUTE_LIST,
    PROC_THREAD_ATTRIBUTE_HANDLE_LIST, PROC_THREAD_ATTRIBUTE_JOB_LIST, UpdateProcThreadAttribute,
};

/// A list of attributes. It refers to their values, which therefore outlive it.
#[derive(Debug)]
pub(super) struct Attributes<'a> {
    /// Words, so that it is aligned for whatever is in it.
    list: Vec<u64>,
    values: PhantomData<&'a [HANDLE]>,
}

impl<'a> Attributes<'a> {
    /// Where there is to be none there is no list: what the system makes of an empty one is not said.
    pub(super) fn with_room_for(count: u32) -> io::Result<Attributes<'a>> {
        if count == 0 {
            return Ok(Attributes { list: Vec::new(), values: PhantomData });
        }
        let mut bytes = 0;
        // SAFETY: without a list it says how large one is. That it fails is what it is asked for.
        let _ =
            unsafe { InitializeProcThreadAttributeList(ptr::null_mut(), count, 0, &raw mut bytes) };
        let mut list = vec![0_u64; bytes.div_ceil(mem::size_of::<u64>())];
        // SAFETY: a live buffer of the size that was told.
        let made = unsafe {
            InitializeProcThreadAttributeList(list.as_mut_ptr().cast(), count, 0, &raw mut bytes)
        };
        if made == 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Attributes { list, values: PhantomData })
    }

    /// The child inherits these and no other. Each is inheritable, and none there twice.
    pub(super) fn set_handles(&mut self, handles: &'a [HANDLE]) -> io::Result<()> {
        self.set(PROC_THREAD_ATTRIBUTE_HANDLE_LIST, handles)
    }

    /// The child is in these jobs before it runs.
    pub(super) fn set_jobs(&mut self, jobs: &'a [HANDLE]) -> io::Result<()> {
        self.set(PROC_THREAD_ATTRIBUTE_JOB_LIST, jobs)
    }

    fn set(&mut self, attribute: u32, values: &'a [HANDLE]) -> io::Result<()> {
        // SAFETY: a list that was initialised with room for it; values that outlive the list.
        let set = unsafe {
            UpdateProcThreadAttribute(
                self.as_ptr(),
                0,
                attribute as usize,
                values.as_ptr().cast::<c_void>(),
                mem::size_of_val(values),
                ptr::null_mut(),
                ptr::null(),
            )
        };
        if set == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// NULL where there is none.
    pub(super) fn as_ptr(&mut self) -> LPPROC_THREAD_ATTRIBUTE_LIST {
        if self.list.is_empty() { ptr::null_mut() } else { self.list.as_mut_ptr().cast() }
    }
}

impl Drop for Attributes<'_> {
    fn drop(&mut self) {
        let list = self.as_ptr();
        if !list.is_null() {
            // SAFETY: a list that was initialised, and that nobody uses any more.
            unsafe { DeleteProcThreadAttributeList(list) };
        }
    }
}
