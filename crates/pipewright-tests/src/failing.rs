//! A filesystem that fails, for root: a thread of this program serves `/dev/fuse` (fuse(4), version 7 of the protocol).

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::mount::{MountFlags, mount};

use crate::mounts::Mounted;
use crate::skip::{Lack, Need};

/// The length of its one file.
pub const FILE_BYTES: usize = 256 << 10;
/// The byte from which on every read and write fails. No request spans it.
pub const GOOD_BYTES: usize = 64 << 10;

const ROOT: u64 = 1;
const DATA: u64 = 2;

/// Mounts the filesystem with a file `data` of zeros. Its first sync fails and every later one succeeds, as the
/// kernel's do.
///
/// Call [`private`](crate::mounts::private) first. `Err` is what the machine lacks.
pub fn mount_failing(folder: &Path) -> Result<(Mounted, PathBuf), Lack> {
    mount_failing_with(folder, libc::EIO)
}

/// Mounts the filesystem. Its first sync fails with that error.
pub fn mount_failing_with(folder: &Path, sync_errno: i32) -> Result<(Mounted, PathBuf), Lack> {
    let place = folder.join("failing");
    std::fs::create_dir_all(&place).expect("the folder is ours");
    let device = File::options().read(true).write(true).open("/dev/fuse");
    let device = device.map_err(|error| Lack::new(Need::File("/dev/fuse"), error))?;
    // No request is longer than the good part, so that none fails halfway.
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,max_read={GOOD_BYTES}\0",
        device.as_raw_fd()
    );
    let options = std::ffi::CStr::from_bytes_with_nul(options.as_bytes()).expect("one end");
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("failing", &place, "fuse", flags, options)
        .map_err(|error| Lack::new(Need::Filesystem("fuse"), error))?;
    // The thread ends with the mount, which makes its read fail.
    thread::Builder::new()
        .name("failing".to_owned())
        .spawn(move || {
            Server { device, data: vec![0; FILE_BYTES], sync_errno, has_failed: false }.serve();
        })
        .expect("a thread can be started");
    let data = place.join("data");
    Ok((Mounted::at(place), data))
}

struct Server {
    device: File,
    data: Vec<u8>,
    /// The error of the first sync.
    sync_errno: i32,
    /// True after a sync has failed.
    has_failed: bool,
}

/// A request: `fuse_in_header` and what follows it.
struct Asked<'a> {
    opcode: u32,
    unique: u64,
    node: u64,
    body: &'a [u8],
}

impl Asked<'_> {
    fn of(bytes: &[u8]) -> Asked<'_> {
        Asked {
            opcode: u32_at(bytes, 4),
            unique: u64_at(bytes, 8),
            node: u64_at(bytes, 16),
            body: &bytes[40..],
        }
    }
}

impl Server {
    fn serve(mut self) {
        let mut room = vec![0; 1 << 20];
        while let Ok(length) = self.device.read(&mut room) {
            let asked = Asked::of(&room[..length]);
            let Some(answer) = self.answer(&asked) else { continue };
            let (error, body) = match answer {
                Ok(body) => (0, body),
                Err(errno) => (-errno, Vec::new()),
            };
            let mut reply = ((16 + body.len()) as u32).to_ne_bytes().to_vec();
            reply.extend(error.to_ne_bytes());
            reply.extend(asked.unique.to_ne_bytes());
            reply.extend(body);
            // Ignored: the requester is gone.
            let _ = self.device.write(&reply);
        }
    }

    /// Returns the answer, or `None` if the request needs none.
    fn answer(&mut self, asked: &Asked<'_>) -> Option<Result<Vec<u8>, i32>> {
        Some(match asked.opcode {
            opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT => return None,
            opcode::INIT => Ok(words(&[
                // The version; the read-ahead and other flags; two 16-bit numbers; the longest write; the
                // granularity of times.
                7,
                31,
                0,
                0,
                0,
                GOOD_BYTES as u32,
                1,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
            ])),
            opcode::LOOKUP if asked.node == ROOT && asked.body == b"data\0" => {
                // Its number and generation; the lifetime of these and of its attributes.
                let mut entry = longs(&[DATA, 0, 3600, 3600]);
                entry.extend(words(&[0, 0]));
                entry.extend(attributes(DATA));
                Ok(entry)
            }
            opcode::LOOKUP => Err(libc::ENOENT),
            opcode::GETATTR | opcode::SETATTR => {
                let mut answer = longs(&[3600, 0]);
                answer.extend(attributes(asked.node));
                Ok(answer)
            }
            opcode::OPEN => Ok(longs(&[0, 0])),
            opcode::READ => self.good(asked).map(|range| self.data[range].to_vec()),
            opcode::WRITE => self.good(asked).map(|range| {
                // After its header.
                let (bytes, count) = (&asked.body[40..], range.len() as u32);
                self.data[range].copy_from_slice(bytes);
                words(&[count, 0])
            }),
            opcode::FSYNC if !self.has_failed => {
                self.has_failed = true;
                Err(self.sync_errno)
            }
            opcode::FSYNC | opcode::FLUSH | opcode::RELEASE | opcode::DESTROY => Ok(Vec::new()),
            _ => Err(libc::ENOSYS),
        })
    }

    /// Returns the range of a read or a write, if all of it is good.
    fn good(&self, asked: &Asked<'_>) -> Result<Range<usize>, i32> {
        let (from, count) = (u64_at(asked.body, 8) as usize, u32_at(asked.body, 16) as usize);
        let range = from..from + count;
        if range.end <= GOOD_BYTES { Ok(range) } else { Err(libc::EIO) }
    }
}

/// `fuse_attr`.
fn attributes(node: u64) -> Vec<u8> {
    let is_root = node == ROOT;
    let bytes = if is_root { 0 } else { FILE_BYTES as u64 };
    let mode = if is_root { libc::S_IFDIR | 0o755 } else { libc::S_IFREG | 0o666 };
    // Its number, length, blocks and three times; the nanoseconds of these; mode, links, owner, group, device; the
    // block size; flags.
    let mut answer = longs(&[node, bytes, bytes / 512, 0, 0, 0]);
    answer.extend(words(&[0, 0, 0, mode, 1, 0, 0, 0, 4096, 0]));
    answer
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn longs(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn u32_at(bytes: &[u8], place: usize) -> u32 {
    u32::from_ne_bytes(bytes[place..place + 4].try_into().expect("four"))
}

fn u64_at(bytes: &[u8], place: usize) -> u64 {
    u64::from_ne_bytes(bytes[place..place + 8].try_into().expect("eight"))
}

/// The numbers of requests (`linux/fuse.h`).
mod opcode {
    pub(super) const LOOKUP: u32 = 1;
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const SETATTR: u32 = 4;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const WRITE: u32 = 16;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const FSYNC: u32 = 20;
    pub(super) const FLUSH: u32 = 25;
    pub(super) const INIT: u32 = 26;
    pub(super) const INTERRUPT: u32 = 36;
    pub(super) const DESTROY: u32 = 38;
    pub(super) const BATCH_FORGET: u32 = 42;
}
