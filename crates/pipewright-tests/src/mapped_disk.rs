//! Disks of the device mapper, for root on a machine whose spare disks belong to the tests: one with bad sectors
//! (`dm-error`), and one that logs every write, so that each moment of a power cut can be made again (`dm-log-writes`).
//!
//! `ci/vm.sh -d SIZE` gives a machine such disks. The format of the log is in the kernel's
//! `Documentation/admin-guide/device-mapper/log-writes.rst` and `drivers/md/dm-log-writes.c`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::mounts::{output, run};
use crate::skip::{Lack, Need};

/// The variable that names the spare disks, separated by colons. The tests destroy their contents.
pub const VARIABLE: &str = "PIPEWRIGHT_TEST_DISKS";

/// The unit of the device mapper's tables.
const SECTOR_BYTES: u64 = 512;
const LOG_MAGIC: u64 = 0x006a_7366_7773_6872;

/// Returns that many spare disks, for the rest of this process. Waits while another one has them: tests run at the same
/// time.
/// `Err` is that there are none.
pub fn spare_disks<const N: usize>() -> Result<[PathBuf; N], Lack> {
    let lack = |detail: String| Lack::new(Need::SpareDisks, detail);
    let names = std::env::var(VARIABLE).map_err(|_| lack(format!("{VARIABLE} names none")))?;
    let disks: Vec<_> = names.split(':').take(N).map(PathBuf::from).collect();
    if let Some(first) = disks.first() {
        let lock = || -> io::Result<()> {
            let disk = File::open(first)?;
            rustix::fs::flock(&disk, rustix::fs::FlockOperation::LockExclusive)?;
            // The end of the process unlocks it.
            std::mem::forget(disk);
            Ok(())
        };
        lock().map_err(|error| lack(format!("cannot lock {}: {error}", first.display())))?;
    }
    disks.try_into().map_err(|_| lack(format!("{N} are needed, {VARIABLE} has {names}")))
}

/// Returns the size of a disk in bytes.
pub fn disk_bytes(disk: &Path) -> io::Result<u64> {
    use std::io::Seek as _;
    File::open(disk)?.seek(io::SeekFrom::End(0))
}

/// A disk of the device mapper, removed on drop.
#[derive(Debug)]
pub struct MappedDisk {
    name: String,
    path: PathBuf,
}

impl MappedDisk {
    /// Creates a disk with a table of dmsetup(8).
    pub fn create(name: &str, table: &str) -> Result<MappedDisk, String> {
        run("dmsetup", &["create", name, "--table", table])?;
        let mut disk = MappedDisk { name: name.to_owned(), path: PathBuf::new() };
        // The kernel creates this name; the one in /dev/mapper is udev's work, which a small machine does not have.
        let minor = output("dmsetup", &["info", "-c", "--noheadings", "-o", "minor", name])?;
        disk.path = PathBuf::from(format!("/dev/dm-{}", minor.trim()));
        Ok(disk)
    }

    /// Creates a disk on `disk` that is whole, except for the bytes of that range, whose every read and write fails.
    pub fn with_bad_bytes(
        name: &str,
        disk: &Path,
        bad: std::ops::Range<u64>,
    ) -> Result<MappedDisk, String> {
        let sectors = disk_bytes(disk).map_err(|error| error.to_string())? / SECTOR_BYTES;
        let (from, to) = (bad.start / SECTOR_BYTES, bad.end / SECTOR_BYTES);
        let table = format!(
            "0 {from} linear {disk} 0\n{from} {} error\n{to} {} linear {disk} {to}",
            to - from,
            sectors - to,
            disk = disk.display(),
        );
        MappedDisk::create(name, &table)
    }

    /// Creates a disk on `disk` that writes a log of everything to another disk.
    pub fn with_log(name: &str, disk: &Path, log: &Path) -> Result<MappedDisk, String> {
        let sectors = disk_bytes(disk).map_err(|error| error.to_string())? / SECTOR_BYTES;
        let table = format!("0 {sectors} log-writes {} {}", disk.display(), log.display());
        MappedDisk::create(name, &table)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a mark, one word, into the log, behind every write that is complete.
    pub fn mark(&self, text: &str) -> Result<(), String> {
        run("dmsetup", &["message", &self.name, "0", "mark", text])
    }
}

impl Drop for MappedDisk {
    fn drop(&mut self) {
        // Fails while a test that has failed still has it open; it ends with the machine then.
        let _ = run("dmsetup", &["remove", "--retry", &self.name]);
    }
}

/// A write that the log contains.
#[derive(Debug, Clone)]
pub struct LoggedWrite {
    /// The place on the disk, in bytes.
    pub offset: u64,
    /// The length in bytes.
    pub bytes: u64,
    /// The place of the data in the log, in bytes; none for a discard.
    data_at: Option<u64>,
    /// Everything complete before it is on the disk.
    pub is_flush: bool,
    /// It is itself on the disk once it is complete.
    pub is_forced: bool,
    /// The text, if it is no write but a mark.
    pub mark: Option<String>,
}

/// The log of a disk's writes, in the order in which they were complete.
#[derive(Debug)]
pub struct WriteLog {
    log: File,
    /// The writes and marks.
    pub writes: Vec<LoggedWrite>,
}

impl WriteLog {
    /// Reads the log of a disk that has been removed.
    pub fn read(log: &Path) -> io::Result<WriteLog> {
        let log = File::open(log)?;
        let head = numbers(&log, 0)?;
        let [magic, _version, entries, sector_bytes] = head;
        // The last field has 32 bits.
        let sector_bytes = sector_bytes & 0xffff_ffff;
        if magic != LOG_MAGIC || sector_bytes == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a log of dm-log-writes"));
        }
        let mut writes = Vec::new();
        let mut at = sector_bytes;
        for _ in 0..entries {
            let [sector, sectors, flags, data_bytes] = numbers(&log, at)?;
            let has = |bit: u32| flags & (1 << bit) != 0;
            let (is_discard, is_mark) = (has(2), has(3));
            let mut mark = None;
            if is_mark {
                let mut text = vec![0; data_bytes as usize];
                log.read_exact_at(&mut text, at + 32)?;
                mark = Some(String::from_utf8_lossy(&text).trim_end_matches('\0').to_owned());
            }
            at += sector_bytes;
            let bytes = sectors * sector_bytes;
            let has_data = !is_discard && !is_mark && bytes > 0;
            writes.push(LoggedWrite {
                offset: sector * sector_bytes,
                bytes,
                data_at: has_data.then_some(at),
                is_flush: has(0),
                is_forced: has(1),
                mark,
            });
            if has_data {
                at += bytes;
            }
        }
        Ok(WriteLog { log, writes })
    }

    /// Does a write again, on the image of a disk. A discard leaves what is there, as many disks do.
    pub fn replay(&self, write: &LoggedWrite, image: &File) -> io::Result<()> {
        let Some(from) = write.data_at else { return Ok(()) };
        let mut data = vec![0; write.bytes as usize];
        self.log.read_exact_at(&mut data, from)?;
        image.write_all_at(&data, write.offset)
    }
}

/// A disk as a power cut may leave it.
#[derive(Debug)]
pub struct CutDisk<'a> {
    /// The image of the disk.
    pub image: &'a Path,
    /// The place of the cut in the log.
    pub at: usize,
    /// The marks before the cut.
    pub marks: Vec<&'a str>,
}

/// Makes the disk again as it may be after power cuts at random places, the last one behind everything, and calls
/// `check` for each. Everything until the last flush before a cut is there, and a random part of what came after it. No
/// cut is before the mark `from`. Returns the number of writes that were lost.
pub fn cut_at_random(
    log: &WriteLog,
    disk: &Path,
    folder: &Path,
    from: &str,
    count: usize,
    mut check: impl FnMut(CutDisk<'_>),
) -> io::Result<usize> {
    let is_from = |write: &LoggedWrite| write.mark.as_deref() == Some(from);
    let from = log.writes.iter().position(is_from).ok_or(io::ErrorKind::NotFound)?;
    let mut choice = Choice(7);
    let mut cuts: Vec<_> =
        (0..count).map(|_| from + choice.below(log.writes.len() - from)).collect();
    cuts.push(log.writes.len());
    cuts.sort_unstable();
    let image = folder.join("image.img");
    let flushed = File::create(&image)?;
    flushed.set_len(disk_bytes(disk)?)?;
    let (mut replayed, mut lost) = (0, 0);
    for cut in cuts {
        // A flush brings to the disk what was complete before it, and dm-log-writes has only that before it.
        let last_flush = log.writes[..cut].iter().rposition(|write| write.is_flush);
        let safe = last_flush.map_or(0, |at| at + 1).max(replayed);
        for write in &log.writes[replayed..safe] {
            log.replay(write, &flushed)?;
        }
        replayed = safe;
        let after_cut = folder.join("cut.img");
        std::fs::copy(&image, &after_cut)?;
        let after = File::options().write(true).open(&after_cut)?;
        for write in &log.writes[safe..cut] {
            if write.is_forced || choice.below(2) == 0 {
                log.replay(write, &after)?;
            } else {
                lost += usize::from(write.bytes > 0);
            }
        }
        drop(after);
        let marks = log.writes[..cut].iter().filter_map(|write| write.mark.as_deref()).collect();
        check(CutDisk { image: &after_cut, at: cut, marks });
    }
    Ok(lost)
}

/// Chooses numbers in a fixed but irregular order.
struct Choice(u64);

impl Choice {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end.max(1)
    }
}

/// Reads four little-endian numbers.
fn numbers(file: &File, at: u64) -> io::Result<[u64; 4]> {
    let mut bytes = [0; 32];
    file.read_exact_at(&mut bytes, at)?;
    let mut numbers = [0; 4];
    for (number, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
        *number = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
    }
    Ok(numbers)
}
