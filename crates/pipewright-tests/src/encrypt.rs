//! Folders that the filesystem encrypts (fscrypt), for root.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use crate::skip::{Lack, Need};

/// `struct fscrypt_add_key_arg`, with the key behind it.
#[repr(C)]
struct AddKey {
    kind: u32,
    _reserved: u32,
    /// The kernel writes the identifier of the key to the first 16 bytes.
    identifier: [u8; 32],
    key_bytes: u32,
    key_id: u32,
    _more: [u32; 8],
    key: [u8; 64],
}

/// `struct fscrypt_policy_v2`.
#[repr(C)]
struct Policy {
    version: u8,
    contents: u8,
    names: u8,
    flags: u8,
    _reserved: [u8; 4],
    identifier: [u8; 16],
}

/// `_IOWR('f', 23, struct fscrypt_add_key_arg)`: without the key behind it.
const ADD_ENCRYPTION_KEY: libc::Ioctl = 0xc050_6617_u32 as libc::Ioctl;
/// `_IOR('f', 19, struct fscrypt_policy_v1)`: 12 bytes, whatever the version.
const SET_ENCRYPTION_POLICY: libc::Ioctl = 0x800c_6613_u32 as libc::Ioctl;

const BY_IDENTIFIER: u32 = 2;
const VERSION_2: u8 = 2;
const AES_256_XTS: u8 = 1;
const AES_256_CTS: u8 = 4;
const PADDED_TO_32: u8 = 3;

/// Creates a folder on a filesystem with the feature `encrypt`. New files in it are encrypted. `Err` is what the machine
/// lacks.
pub fn encrypted_folder(path: &Path) -> Result<(), Lack> {
    let message = |error: io::Error| Lack::new(Need::Filesystem("fscrypt"), error);
    std::fs::create_dir(path).map_err(message)?;
    let folder = File::open(path).map_err(message)?;
    let mut key = AddKey {
        kind: BY_IDENTIFIER,
        _reserved: 0,
        identifier: [0; 32],
        key_bytes: 64,
        key_id: 0,
        _more: [0; 8],
        key: [0x5a; 64],
    };
    // SAFETY: an open folder, and the struct of that call, followed by the stated number of key bytes.
    let result = unsafe { libc::ioctl(folder.as_raw_fd(), ADD_ENCRYPTION_KEY, &raw mut key) };
    done(result).map_err(message)?;
    let mut policy = Policy {
        version: VERSION_2,
        contents: AES_256_XTS,
        names: AES_256_CTS,
        flags: PADDED_TO_32,
        _reserved: [0; 4],
        identifier: [0; 16],
    };
    policy.identifier.copy_from_slice(&key.identifier[..16]);
    // SAFETY: an open folder, and the struct of that call.
    let result =
        unsafe { libc::ioctl(folder.as_raw_fd(), SET_ENCRYPTION_POLICY, &raw const policy) };
    done(result).map_err(message)
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
