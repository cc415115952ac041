//! The port and the secret of a batch on a Slurm cluster.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Child;
use std::time::Duration;

use super::slurm::{Cluster, all, started};
use super::*;

/// Returns the address at which workers connect, from the messages of a batch.
fn address(child: &mut Child) -> String {
    let mut stderr = child.stderr.take().unwrap();
    let mut text = String::new();
    let mut buffer = [0; 1024];
    loop {
        let whole_lines = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
        if let Some(line) = whole_lines.lines().find(|line| line.contains("workers connect to")) {
            let address = line.rsplit(' ').next().unwrap().to_owned();
            // The pipe is kept, so that the batch can go on to write.
            std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
            return address;
        }
        let count = stderr.read(&mut buffer).unwrap();
        assert_ne!(count, 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
}

#[test]
fn strangers_at_the_port_get_nothing_and_disturb_nobody() {
    let Some(_cluster) = Cluster::take(240) else { return };
    let place = Place::new();
    let mut child = started(&place, "slurm-strangers", 2, &["--verbose"], 16);
    let address = address(&mut child);
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    until("both nodes are full", || place.lines("starts").len() == 16);

    // A port scanner, a browser, somebody who says nothing, and a peer that sends a frame at once.
    let silent = TcpStream::connect(&address).unwrap();
    for bytes in [
        &b""[..],
        b"GET / HTTP/1.0\r\n\r\n",
        b"\x16\x03\x01\x02\0",
        &[0xff; 4096],
        b"\x10\0\0\0pipewright batch",
    ] {
        let mut stream = TcpStream::connect(&address).unwrap();
        // Ignored: the batch may have closed the connection already.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut answer = Vec::new();
        // A connection that is closed with unread bytes is reset.
        let _ = stream.read_to_end(&mut answer);
        assert_eq!(answer, b"");
    }
    // A worker with another secret: neither side accepts the other.
    place.write("other-secret", &"0123456789abcdef".repeat(4));
    let worker = ["worker", "--connect", &address, "--secret-file", "other-secret"];
    let worker = place.tool(&worker).output().unwrap();
    assert_eq!(worker.status.code(), Some(125));
    assert!(err(&worker).contains("the other side does not know the secret"), "{}", err(&worker));

    place.write("end", "");
    assert!(child.wait().unwrap().success());
    drop(silent);
    assert_eq!(place.lines("ends"), all(16));
}

/// Returns the workers with that mark.
fn workers_of(name: &str) -> Vec<u32> {
    let is_worker = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.starts_with(format!("{TOOL}\0worker\0").as_bytes())
    };
    marked(name).into_iter().filter(is_worker).collect()
}

/// Returns the memory of a process that the kernel would write into a core file.
fn core(pid: u32) -> Vec<Vec<u8>> {
    let memory = fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut blocks = Vec::new();
    let mut range = None;
    for line in fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap().lines() {
        let first = line.split(' ').next().unwrap_or_default();
        if let Some((from, to)) = first.split_once('-') {
            let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
            range = Some((number(from), number(to)));
        } else if let Some(flags) = line.strip_prefix("VmFlags:") {
            let (from, to) = range.take().unwrap();
            let has = |flag: &str| flags.split(' ').any(|it| it == flag);
            // Readable and written to, without MADV_DONTDUMP.
            if has("rd") && has("wr") && !has("dd") {
                let mut block = vec![0; usize::try_from(to - from).unwrap()];
                std::os::unix::fs::FileExt::read_exact_at(&memory, &mut block, from).unwrap();
                blocks.push(block);
            }
        }
    }
    assert!(blocks.len() > 3);
    blocks
}

#[test]
fn the_secret_is_in_no_command_line_no_environment_no_core_and_no_log() {
    let Some(_cluster) = Cluster::take(120) else { return };
    let place = Place::new();
    let mut child = started(&place, "slurm-secret", 2, &["--verbose"], 2);
    until("both jobs run", || place.lines("starts").len() == 2);
    let file = |entry: fs::DirEntry| {
        let is_secret = entry.file_name().to_string_lossy().starts_with(".pipewright-");
        is_secret.then(|| entry.path())
    };
    let entries = fs::read_dir(place.path("pipewright")).unwrap().map(Result::unwrap);
    let files: Vec<_> = entries.filter_map(file).collect();
    assert_eq!(files.len(), 1);
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&files[0]).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    let secret = fs::read(&files[0]).unwrap();
    assert_eq!(secret.len(), 64);
    let has_secret = |bytes: &[u8]| bytes.windows(64).any(|window| window == secret);
    for process in fs::read_dir("/proc").unwrap().map(Result::unwrap) {
        for file in ["cmdline", "environ"] {
            let bytes = fs::read(process.path().join(file)).unwrap_or_default();
            assert!(!has_secret(&bytes), "{:?} {file}", process.path());
        }
    }
    let raw: Vec<u8> = secret
        .chunks(2)
        .map(|digits| u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap())
        .collect();
    let tools = [vec![child.id()], workers_of("slurm-secret")].concat();
    assert_eq!(tools.len(), 3, "the batch and two workers");
    for pid in tools {
        for block in core(pid) {
            let is_raw = block.windows(32).any(|window| window == raw);
            assert!(!is_raw && !has_secret(&block), "a core of {pid} would have the secret");
        }
    }
    place.write("end", "");
    assert!(child.wait().unwrap().success());
    assert!(!has_secret(&fs::read(place.path("run.db")).unwrap()));
    let left = fs::read_dir(place.path("pipewright")).unwrap().count();
    assert_eq!(left, 0, "a file of the batch is left");
}
