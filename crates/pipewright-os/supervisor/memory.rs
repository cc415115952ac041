//! The functions of the C library that the compiler calls by itself, to copy, fill and compare structures.
//!
//! The target and the version of the compiler decide where it calls one. The linker leaves out those that nothing calls.

/// # Safety
/// As memcpy(3): both are valid for that many bytes, and do not overlap.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
    // SAFETY: the caller promises more.
    unsafe { memmove(to, from, bytes) }
}

/// # Safety
/// As memmove(3): both are valid for that many bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
    // In the order in which no byte is overwritten before it is read.
    let is_forward = to.addr() <= from.addr();
    for at in 0..bytes {
        let at = if is_forward { at } else { bytes - 1 - at };
        // SAFETY: both are valid for more bytes than this.
        unsafe { to.add(at).write(from.add(at).read()) };
    }
    to
}

/// # Safety
/// As memset(3): valid for that many bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, bytes: usize) -> *mut u8 {
    for at in 0..bytes {
        // SAFETY: it is valid for more bytes than this.
        unsafe { to.add(at).write(byte as u8) };
    }
    to
}

/// # Safety
/// As memcmp(3): both are valid for that many bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(left: *const u8, right: *const u8, bytes: usize) -> i32 {
    for at in 0..bytes {
        // SAFETY: both are valid for more bytes than this.
        let (left, right) = unsafe { (left.add(at).read(), right.add(at).read()) };
        if left != right {
            return i32::from(left) - i32::from(right);
        }
    }
    0
}

/// # Safety
/// As memcmp(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(left: *const u8, right: *const u8, bytes: usize) -> i32 {
    // SAFETY: the same is required of the caller.
    unsafe { memcmp(left, right, bytes) }
}
