//! Private filesystems of a test, for root. A mount namespace hides them from the machine, and removes them with the
//! process, even if the test fails.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::skip::{Lack, Need};

/// Makes later mounts of this thread, and of threads that it starts, visible to these threads only.
///
/// `Err` is what the machine lacks, in every function here that mounts.
pub fn private() -> Result<(), Lack> {
    if !crate::skip::is_root() {
        return Err(Lack::new(Need::Root, "filesystems can be mounted by root only"));
    }
    // SAFETY: a mount namespace has nothing to do with memory or descriptors of other threads.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }
        .map_err(|error| Lack::new(Need::Mount, error))?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(|error| Lack::new(Need::Mount, error))
}

/// A mounted filesystem, until it is dropped.
#[derive(Debug)]
pub struct Mounted(PathBuf);

impl Mounted {
    /// Takes a filesystem that other code has mounted there.
    pub fn at(place: PathBuf) -> Mounted {
        Mounted(place)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // The loop device goes with the mount: `mount -o loop` sets autoclear (losetup(8)).
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// Mounts a filesystem in a new folder of that name; the words are the arguments of `mount`.
pub fn mount<W: AsRef<OsStr>>(folder: &Path, name: &str, words: &[W]) -> Result<Mounted, Lack> {
    let place = folder.join(name);
    fs::create_dir_all(&place).expect("the folder is ours");
    let words = words.iter().map(AsRef::as_ref).chain([place.as_os_str()]);
    run("mount", &words.collect::<Vec<_>>()).map_err(|error| Lack::new(Need::Mount, error))?;
    Ok(Mounted(place))
}

/// Creates a filesystem of that kind in a file of that size below the folder, and mounts it.
pub fn loop_mount(
    folder: &Path,
    kind: &'static str,
    bytes: u64,
    options: &str,
) -> Result<Mounted, Lack> {
    let image = new_image(folder, kind, bytes);
    make_filesystem(&image, kind, &[])?;
    mount_image(folder, &image, kind, options)
}

/// Does the same as [`loop_mount`], with an ext4 that can encrypt folders.
pub fn loop_mount_encrypting(folder: &Path, bytes: u64) -> Result<Mounted, Lack> {
    let image = new_image(folder, "encrypting", bytes);
    make_filesystem(&image, "ext4", &["-O", "encrypt"])?;
    mount_image(folder, &image, "ext4", "rw").map_err(|lack| lack.of(Need::Filesystem("fscrypt")))
}

fn new_image(folder: &Path, name: &str, bytes: u64) -> PathBuf {
    let image = folder.join(format!("{name}.img"));
    let file = fs::File::create(&image).expect("the folder is ours");
    file.set_len(bytes).expect("no byte is written");
    image
}

fn make_filesystem(image: &Path, kind: &'static str, words: &[&str]) -> Result<(), Lack> {
    let quiet = if kind == "xfs" || kind == "btrfs" { "-fq" } else { "-Fq" };
    let words = words.iter().map(OsStr::new).chain([quiet.as_ref(), image.as_os_str()]);
    run(&format!("mkfs.{kind}"), &words.collect::<Vec<_>>())
        .map_err(|error| Lack::new(Need::Filesystem(kind), error))
}

/// Creates a filesystem on a disk, and mounts it.
pub fn mount_disk(folder: &Path, disk: &Path, kind: &'static str) -> Result<Mounted, Lack> {
    make_filesystem(disk, kind, &[])?;
    mount(folder, "disk-mounted", &["-t".as_ref(), kind.as_ref(), disk.as_os_str()])
}

/// Mounts the image of a filesystem.
pub fn mount_image(
    folder: &Path,
    image: &Path,
    kind: &'static str,
    options: &str,
) -> Result<Mounted, Lack> {
    let options = format!("loop,{options}");
    let words = ["-t".as_ref(), kind.as_ref(), "-o".as_ref(), options.as_ref(), image.as_os_str()];
    let stem = image.file_stem().unwrap_or_default().to_string_lossy();
    mount::<&OsStr>(folder, &format!("{stem}-mounted"), &words)
        .map_err(|lack| lack.of(Need::Filesystem(kind)))
}

/// Mounts an overlay over a folder.
pub fn overlay(folder: &Path, below: &Path) -> Result<Mounted, Lack> {
    for part in ["lower", "upper", "work"] {
        fs::create_dir_all(below.join(part)).expect("the folder is ours");
    }
    let below = below.display();
    let options = format!("lowerdir={below}/lower,upperdir={below}/upper,workdir={below}/work");
    mount(folder, "overlay", &["-t", "overlay", "-o", &options, "none"])
        .map_err(|lack| lack.of(Need::Filesystem("overlay")))
}

/// Runs a program of the system. `Err` is its error message, or that it is missing.
pub fn run<W: AsRef<OsStr>>(program: &str, words: &[W]) -> Result<(), String> {
    output(program, words).map(drop)
}

/// Runs a program of the system and returns what it prints. `Err` is as in [`run`].
pub fn output<W: AsRef<OsStr>>(program: &str, words: &[W]) -> Result<String, String> {
    let output = Command::new(program).args(words).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program}: {}", stderr.lines().next().unwrap_or("failed")))
}

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

/// Creates a folder on a filesystem with the feature `encrypt`. New files in it are encrypted. `Err` is what the
/// machine lacks.
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
