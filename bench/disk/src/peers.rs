//! The cells of the peers: std, tokio, the io-uring crate and fio.

use std::fs::{File, OpenOptions};
use std::io::SeekFrom;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, types};
use pipewright_disk::AlignedBuf;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};

use crate::Result;

/// The length of a read.
pub(crate) const BLOCK: usize = 4096;
const BLOCKS: u64 = (1 << 30) / BLOCK as u64;

pub(crate) const WRITE_BYTES: u64 = 4 << 30;
pub(crate) const WRITE_BLOCK: usize = 1 << 20;
pub(crate) const WRITE_DEPTH: usize = 8;

const O_DIRECT: i32 = 0o40_000;

/// A generator of pseudo-random offsets of blocks, in the same order for all peers.
pub(crate) struct Places(u64, u64);

impl Default for Places {
    fn default() -> Places {
        Places(0x2545_f491_4f6c_dd1d, BLOCKS)
    }
}

impl Places {
    /// Returns a generator of offsets below 4 MiB: writes there stay in memory.
    pub(crate) fn near() -> Places {
        Places(0x2545_f491_4f6c_dd1d, 1024)
    }

    pub(crate) fn next_place(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % self.1 * BLOCK as u64
    }
}

pub(crate) fn writes_to(folder: &Path) -> PathBuf {
    folder.join("pipewright-bench-disk-write")
}

pub(crate) fn mib_a_second(took: Duration) -> f64 {
    WRITE_BYTES as f64 / f64::from(1 << 20) / took.as_secs_f64()
}

pub(crate) fn std_cached(path: &Path, time: Duration) -> Result<f64> {
    let file = File::open(path)?;
    let (mut places, mut buffer) = (Places::default(), AlignedBuf::zeroed(BLOCK, 1)?);
    let (began, mut count) = (Instant::now(), 0_u64);
    while began.elapsed() < time {
        for _ in 0..256 {
            assert_eq!(file.read_at(&mut buffer, places.next_place())?, BLOCK);
        }
        count += 256;
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

pub(crate) fn std_pwrite(path: &Path, time: Duration) -> Result<f64> {
    let file = OpenOptions::new().write(true).open(path)?;
    let (mut places, buffer) = (Places::near(), AlignedBuf::zeroed(BLOCK, 1)?);
    let (began, mut count) = (Instant::now(), 0_u64);
    while began.elapsed() < time {
        for _ in 0..64 {
            assert_eq!(file.write_at(&buffer, places.next_place())?, BLOCK);
        }
        count += 64;
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

pub(crate) fn tokio_cached(path: &Path, time: Duration) -> Result<f64> {
    runtime()?.block_on(async {
        let mut file = tokio::fs::File::open(path).await?;
        let (mut places, mut buffer) = (Places::default(), vec![0; BLOCK]);
        let (began, mut count) = (Instant::now(), 0_u64);
        while began.elapsed() < time {
            for _ in 0..16 {
                file.seek(SeekFrom::Start(places.next_place())).await?;
                file.read_exact(&mut buffer).await?;
            }
            count += 16;
        }
        Ok(count as f64 / began.elapsed().as_secs_f64())
    })
}

pub(crate) fn tokio_direct(path: &Path, time: Duration, depth: usize) -> Result<f64> {
    let file = Arc::new(OpenOptions::new().read(true).custom_flags(O_DIRECT).open(path)?);
    let count = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    runtime()?.block_on(async {
        let tasks: Vec<_> = (0..depth as u64)
            .map(|number| {
                let (file, count) = (Arc::clone(&file), Arc::clone(&count));
                tokio::spawn(async move {
                    let mut places = Places(0x1234_5678 + number * 7919, BLOCKS);
                    let mut buffer = AlignedBuf::zeroed(BLOCK, BLOCK)?;
                    while began.elapsed() < time {
                        let (file, place) = (Arc::clone(&file), places.next_place());
                        let read = move || {
                            let result = file.read_at(&mut buffer, place);
                            (result, buffer)
                        };
                        let (result, back) = tokio::task::spawn_blocking(read).await?;
                        assert_eq!(result?, BLOCK);
                        buffer = back;
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok::<(), std::io::Error>(())
                })
            })
            .collect();
        for task in tasks {
            task.await??;
        }
        Ok::<(), Box<dyn std::error::Error>>(())
    })?;
    Ok(count.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64())
}

/// Reads past the cache with the io-uring crate alone.
pub(crate) fn ring_direct(path: &Path, time: Duration, depth: usize) -> Result<f64> {
    let file = OpenOptions::new().read(true).custom_flags(O_DIRECT).open(path)?;
    let mut builder = IoUring::builder();
    builder.setup_single_issuer().setup_defer_taskrun();
    let mut ring = builder.build(depth as u32)?;
    let buffers = (0..depth).map(|_| AlignedBuf::zeroed(BLOCK, BLOCK));
    let mut buffers = buffers.collect::<std::io::Result<Vec<_>>>()?;
    let mut places = Places::default();
    let fd = types::Fd(file.as_raw_fd());
    let mut push = |ring: &mut IoUring, buffers: &mut [AlignedBuf], number: usize| {
        let start = buffers[number].as_mut_ptr();
        let entry = opcode::Read::new(fd, start, BLOCK as u32).offset(places.next_place()).build();
        // SAFETY: the file and the buffers live until the last completion below.
        unsafe { ring.submission().push(&entry.user_data(number as u64)) }
    };
    for number in 0..depth {
        push(&mut ring, &mut buffers, number)?;
    }
    let (began, mut count) = (Instant::now(), 0_u64);
    let mut done = Vec::with_capacity(depth);
    while began.elapsed() < time {
        ring.submit_and_wait(1)?;
        done.extend(ring.completion().map(|entry| (entry.user_data() as usize, entry.result())));
        for (number, result) in done.drain(..) {
            assert_eq!(result, BLOCK as i32);
            push(&mut ring, &mut buffers, number)?;
            count += 1;
        }
    }
    let speed = count as f64 / began.elapsed().as_secs_f64();
    let mut left = depth;
    while left > 0 {
        ring.submit_and_wait(1)?;
        left -= ring.completion().count();
    }
    Ok(speed)
}

pub(crate) fn fio_read(path: &Path, time: Duration, depth: usize) -> Result<f64> {
    let seconds = time.as_secs_f64().ceil().max(1.0);
    let words = [
        "--rw=randread".to_owned(),
        format!("--bs={BLOCK}"),
        format!("--iodepth={depth}"),
        format!("--runtime={seconds}"),
        "--time_based".to_owned(),
        "--size=1g".to_owned(),
        format!("--filename={}", path.display()),
    ];
    // Terse format 3: field 8 is the number of reads per second (fio(1), TERSE OUTPUT).
    fio(&words)?.get(7).ok_or("fio printed too few fields")?.parse().map_err(Into::into)
}

pub(crate) fn fio_write(folder: &Path) -> Result<f64> {
    let path = writes_to(folder);
    // fio allocates the file before it starts its clock (`--fallocate`), as our cell preallocates it.
    let file = File::create(&path)?;
    drop(file);
    let words = [
        "--rw=write".to_owned(),
        format!("--bs={WRITE_BLOCK}"),
        format!("--iodepth={WRITE_DEPTH}"),
        format!("--size={WRITE_BYTES}"),
        "--fallocate=native".to_owned(),
        format!("--filename={}", path.display()),
    ];
    let fields = fio(&words);
    std::fs::remove_file(&path)?;
    // Field 48 is the bandwidth of writes in KiB/s.
    let kib: f64 = fields?.get(47).ok_or("fio printed too few fields")?.parse()?;
    Ok(kib / 1024.0)
}

fn fio(words: &[String]) -> Result<Vec<String>> {
    let mut command = Command::new("fio");
    command.args(["--name=b", "--ioengine=io_uring", "--direct=1", "--minimal", "--invalidate=0"]);
    let output = command.args(words).output().map_err(|error| format!("fio: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let stdout = String::from_utf8(output.stdout)?;
    let line = stdout.lines().find(|line| line.starts_with("3;")).ok_or("fio printed no result")?;
    Ok(line.split(';').map(str::to_owned).collect())
}

pub(crate) fn preadv2(path: &Path, time: Duration) -> Result<f64> {
    let mut options = pipewright_os::disk::file::OpenOptions::default();
    options.read = true;
    let file = pipewright_os::disk::file::File::open(path, &options)?;
    let (mut places, mut buffer) = (Places::default(), AlignedBuf::zeroed(BLOCK, 1)?);
    let (began, mut count) = (Instant::now(), 0_u64);
    while began.elapsed() < time {
        for _ in 0..256 {
            if file.read_cached_at(&mut buffer, places.next_place())?.is_none() {
                continue;
            }
        }
        count += 256;
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}
