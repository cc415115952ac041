//! Access lists: the users who may open our objects by name, or get more rights than their handle has.

use std::ffi::c_void;
use std::io;
use std::ptr;

use windows_sys::Win32::Foundation::LocalFree;
use windows_sys::Win32::Security::Authorization::{
    ConvertStringSecurityDescriptorToSecurityDescriptorW, SDDL_REVISION_1,
};
use windows_sys::Win32::Security::SECURITY_ATTRIBUTES;

use crate::base::handle::size_of_u32;

/// The owner alone. `S-1-3-4` is OWNER RIGHTS: an entry for it replaces the rights that an owner has without one.
pub(crate) const OWNER: &str = "D:P(A;;GA;;;S-1-3-4)";

/// A security descriptor.
#[derive(Debug)]
pub(crate) struct Descriptor(*mut c_void);

// SAFETY: memory of the process's, which nobody writes to.
unsafe impl Send for Descriptor {}
// SAFETY: as above.
unsafe impl Sync for Descriptor {}

impl Descriptor {
    /// Makes one of its text.
    ///
    /// # Errors
    /// No memory, or a text that is none.
    pub(crate) fn of(text: &str) -> io::Result<Descriptor> {
        let text: Vec<u16> = text.encode_utf16().chain([0]).collect();
        let (mut made, size) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: a text that ends with a zero, a live place, and a size that nobody wants.
        let done = unsafe {
            ConvertStringSecurityDescriptorToSecurityDescriptorW(
                text.as_ptr(),
                SDDL_REVISION_1,
                &raw mut made,
                size,
            )
        };
        if done == 0 { Err(io::Error::last_os_error()) } else { Ok(Descriptor(made)) }
    }

    /// To be used while this lives. What is made with them is not inherited.
    pub(crate) fn attributes(&self) -> SECURITY_ATTRIBUTES {
        SECURITY_ATTRIBUTES {
            nLength: size_of_u32::<SECURITY_ATTRIBUTES>(),
            lpSecurityDescriptor: self.0,
            bInheritHandle: 0,
        }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: made by the call above, for us to free.
        unsafe { LocalFree(self.0) };
    }
}
