//! Access control: the users who may open our objects by name, or get more rights than their handle
//! has.

use std::ffi::c_void;
use std::io;
use std::ptr;

use windows_sys::Win32::Foundation::LocalFree;
use windows_sys::Win32::Security::Authorization::{
    ConvertStringSecurityDescriptorToSecurityDescriptorW, SDDL_REVISION_1,
};
use windows_sys::Win32::Security::SECURITY_ATTRIBUTES;

use crate::base::handle::size_of_u32;

/// Grants access to the owner alone. `S-1-3-4` is OWNER RIGHTS: an entry for it replaces the rights
/// that an owner has without one.
pub(crate) const OWNER_ONLY: &str = "D:P(A;;GA;;;S-1-3-4)";

#[derive(Debug)]
pub(crate) struct SecurityDescriptor(*mut c_void);

// SAFETY: memory of this process, which nothing writes to.
unsafe impl Send for SecurityDescriptor {}
// SAFETY: as above.
unsafe impl Sync for SecurityDescriptor {}

impl SecurityDescriptor {
    /// Parses a descriptor from its text (SDDL).
    ///
    /// # Errors
    /// No memory, or an invalid text.
    pub(crate) fn from_sddl(text: &str) -> io::Result<SecurityDescriptor> {
        let text: Vec<u16> = text.encode_utf16().chain([0]).collect();
        let (mut made, size) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: a text that ends with a zero, a live pointer, and no place for the size.
        let done = unsafe {
            ConvertStringSecurityDescriptorToSecurityDescriptorW(
                text.as_ptr(),
                SDDL_REVISION_1,
                &raw mut made,
                size,
            )
        };
        if done == 0 { Err(io::Error::last_os_error()) } else { Ok(SecurityDescriptor(made)) }
    }

    /// Returns attributes that are valid while this lives. Handles made with them are not
    /// inheritable.
    pub(crate) fn attributes(&self) -> SECURITY_ATTRIBUTES {
        SECURITY_ATTRIBUTES {
            nLength: size_of_u32::<SECURITY_ATTRIBUTES>(),
            lpSecurityDescriptor: self.0,
            bInheritHandle: 0,
        }
    }
}

impl Drop for SecurityDescriptor {
    fn drop(&mut self) {
        // SAFETY: allocated by the call in `from_sddl`, and freed once.
        unsafe { LocalFree(self.0) };
    }
}
