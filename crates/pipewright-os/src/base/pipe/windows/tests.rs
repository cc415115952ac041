//! Tests of pipe ends and their modes, and a model of the kernel.

use std::io::{self, Read as _, Write as _};
use std::os::windows::io::{
    AsHandle, AsRawHandle, BorrowedHandle, FromRawHandle as _, OwnedHandle,
};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use windows_sys::Win32::Foundation::{
    ERROR_BROKEN_PIPE, ERROR_HANDLE_EOF, ERROR_INVALID_PARAMETER, ERROR_NO_DATA,
    ERROR_OPERATION_ABORTED, ERROR_PIPE_NOT_CONNECTED,
};
use windows_sys::Win32::Storage::FileSystem::{FILE_FLAG_OVERLAPPED, PIPE_ACCESS_INBOUND};
use windows_sys::Win32::System::Pipes::{
    CreateNamedPipeW, PIPE_READMODE_MESSAGE, PIPE_TYPE_MESSAGE,
};

use super::super::{Mode, PipeOptions, PipeReader, PipeWriter, pair};
use super::{WriteRequest, calls};
use crate::base::error::os_error;
use crate::base::handle::{Handle, HandleKind, inheritable, is_overlapped};
use crate::base::overlapped::OverlappedIo;
use crate::base::wait::Slot;
use crate::base::wake::Wake;

const MODES: [Mode; 2] = [Mode::Sync, Mode::Async];

fn every_pair() -> impl Iterator<Item = (PipeOptions, PipeReader, PipeWriter)> {
    MODES.into_iter().flat_map(|read| MODES.into_iter().map(move |write| (read, write))).map(
        |(read, write)| {
            let options = PipeOptions { read, write, capacity: None };
            let (reader, writer) = pair(options).unwrap();
            (options, reader, writer)
        },
    )
}

fn borrowed(writer: &PipeWriter) -> BorrowedHandle<'_> {
    // SAFETY: nothing closes it meanwhile.
    unsafe { BorrowedHandle::borrow_raw(writer.as_raw_handle()) }
}

#[test]
fn a_write_of_zero_bytes_does_not_cancel_a_pending_write() {
    let options = PipeOptions { write: Mode::Async, ..PipeOptions::default() };
    let (reader, writer) = pair(options).unwrap();
    while writer.try_write(&[7; 4096]).is_ok() {}
    let held = reader.available().unwrap();
    writer.end().start_write(WriteRequest { bytes: Arc::new(vec![8; 100]), from: 0 }).unwrap();
    assert_eq!(reader.available().unwrap(), held + 100);
    assert_eq!((writer.try_write(&[]).unwrap(), reader.available().unwrap()), (0, held + 100));
}

/// Needs the right to query, which is not part of the right to write. (Wine reports a wrong number,
/// and requires the same right.)
#[test]
fn every_writing_end_may_be_queried_for_its_room() {
    for (options, _reader, writer) in every_pair() {
        assert!(calls::reported_room(borrowed(&writer)).is_some(), "{options:?}");
    }
}

#[test]
fn each_end_has_its_requested_mode_and_is_not_inheritable() {
    for (options, reader, writer) in every_pair() {
        let mode = |overlaps| if overlaps { Mode::Async } else { Mode::Sync };
        assert_eq!(mode(is_overlapped(reader.as_handle())), options.read, "{options:?}");
        assert_eq!(mode(is_overlapped(borrowed(&writer))), options.write, "{options:?}");
        assert!(!inheritable(reader.as_handle()).unwrap());
        assert!(!inheritable(borrowed(&writer)).unwrap());
        // Also after conversions, which lose the known mode.
        let reader = PipeReader::from(OwnedHandle::from(reader));
        let writer = PipeWriter::from(OwnedHandle::from(writer));
        assert_eq!(mode(reader.is_overlapped()), options.read, "{options:?}");
        assert_eq!(mode(writer.end().is_overlapped()), options.write, "{options:?}");
        for handle in [Handle::from(reader), Handle::from(writer)] {
            assert_eq!(handle.kind().unwrap(), HandleKind::Pipe);
        }
    }
}

/// Tests the behaviour: a call on a synchronous end has finished when it returns.
#[test]
fn a_synchronous_end_blocks_while_the_other_is_overlapped() {
    let (reader, writer) = pair(PipeOptions { read: Mode::Async, ..Default::default() }).unwrap();
    let event = Wake::new().unwrap();
    let mut room = [0; 16];
    // SAFETY: stopped before the buffer is dropped.
    let mut pending =
        unsafe { OverlappedIo::read(reader.as_raw_handle(), &event, room.as_mut_ptr(), 16) };
    assert!(pending.result().is_none(), "ours has returned, and the read goes on");
    assert!(pending.stop().is_none());
    drop(pending);
    thread::scope(|scope| {
        let (theirs, ours) =
            pair(PipeOptions { write: Mode::Async, ..Default::default() }).unwrap();
        let blocks = scope.spawn(move || (&theirs).read(&mut [0; 16]).unwrap());
        thread::park_timeout(Duration::from_millis(30));
        assert!(!blocks.is_finished());
        (&ours).write_all(b"now").unwrap();
        assert_eq!(blocks.join().unwrap(), 3);
    });
    drop(writer);
}

#[test]
fn bytes_and_the_end_pass_through_every_kind_of_pair() {
    for (options, mut reader, mut writer) in every_pair() {
        let all: Vec<u8> = (0..300_000).map(|i| (i / 3) as u8).collect();
        let expected = all.clone();
        let writing = thread::spawn(move || {
            writer.write_all(&[]).unwrap();
            writer.write_all(&all).unwrap();
        });
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        assert!(read == expected, "{options:?}: {} bytes", read.len());
        writing.join().unwrap();
        assert_eq!(reader.available().unwrap(), 0);
        assert_eq!(reader.try_read_spare(&mut Vec::with_capacity(1)).unwrap(), 0);
    }
}

#[test]
fn a_write_of_zero_bytes_does_not_end_a_read() {
    for (options, mut reader, writer) in every_pair() {
        let mut buffer = Vec::with_capacity(16);
        if options.write == Mode::Sync {
            writer.end().write_nothing();
        }
        let error = reader.try_read_spare(&mut buffer).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{options:?}");
        let writing = thread::spawn(move || {
            if options.write == Mode::Sync {
                writer.end().write_nothing();
            }
            (&writer).write_all(b"more").unwrap();
        });
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "more", "{options:?}");
        writing.join().unwrap();
    }
}

#[test]
fn a_write_takes_what_fits_and_a_read_returns_it() {
    for capacity in [16 << 10, 100_000, 1 << 20] {
        let options =
            PipeOptions { read: Mode::Async, write: Mode::Async, capacity: Some(capacity) };
        let (mut reader, writer) = pair(options).unwrap();
        let mut held = 0;
        loop {
            match writer.try_write(&[7; 4096]) {
                Ok(count) => held += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(held >= capacity, "{held} of {capacity}");
        assert_eq!(reader.available().unwrap(), held);
        drop(writer);
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), held);
    }
}

#[test]
fn a_write_without_a_reader_is_a_broken_pipe() {
    for (options, reader, writer) in every_pair() {
        drop(reader);
        for error in [writer.try_write(b"x").unwrap_err(), (&writer).write(b"x").unwrap_err()] {
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe, "{options:?}");
        }
    }
}

#[test]
fn close_ends_the_stream_though_references_remain() {
    for (options, mut reader, writer) in every_pair() {
        (&writer).write_all(b"last").unwrap();
        let held = &writer;
        held.close().unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "last", "{options:?}");
        assert_eq!((&writer).write(b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        // It can still be converted.
        assert_eq!(Handle::from(writer).kind().unwrap(), HandleKind::Pipe);
    }
}

#[test]
fn a_copy_keeps_the_pipe_open() {
    for (options, mut reader, mut writer) in every_pair() {
        let mut copy = writer.try_clone().unwrap();
        let also = reader.try_clone().unwrap();
        writer.write_all(b"a").unwrap();
        drop(writer);
        copy.write_all(b"b").unwrap();
        drop(copy);
        drop(also);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "ab", "{options:?}");
    }
}

#[test]
fn reads_of_a_file_continue_to_its_end() {
    let path = std::env::temp_dir().join(format!("pipewright-{}-read-on", std::process::id()));
    std::fs::write(&path, b"0123456789").unwrap();
    let file = OwnedHandle::from(std::fs::File::open(&path).unwrap());
    let mut reader = PipeReader::from(file);
    let mut four = [0; 4];
    reader.read_exact(&mut four).unwrap();
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert_eq!((&four, rest.as_str()), (b"0123", "456789"));
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn an_overlapped_file_is_refused_and_not_read_from_its_start_for_ever() {
    use std::os::windows::fs::OpenOptionsExt as _;
    let path = std::env::temp_dir().join(format!("pipewright-{}-overlaps", std::process::id()));
    std::fs::write(&path, b"0123").unwrap();
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).custom_flags(FILE_FLAG_OVERLAPPED);
    let open = || OwnedHandle::from(options.open(&path).unwrap());
    let mut reader = PipeReader::from(open());
    let read = (&reader).read(&mut [0; 2]).and_then(|_| reader.read(&mut [0; 2]));
    let wrote = PipeWriter::from(open()).write(b"x");
    let kept = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(kept, b"0123");
    for error in [read.unwrap_err(), wrote.unwrap_err()] {
        assert_eq!(error.raw_os_error(), Some(ERROR_INVALID_PARAMETER as i32));
    }
}

/// Uses a message pipe, which some services have but this crate never makes.
#[test]
fn a_message_longer_than_the_buffer_arrives_in_parts() {
    for how in [0, FILE_FLAG_OVERLAPPED] {
        let name = format!(r"\\.\pipe\LOCAL\pipewright-{}-message-{how}", std::process::id());
        let wide: Vec<u16> = name.encode_utf16().chain([0]).collect();
        let messages = PIPE_TYPE_MESSAGE | PIPE_READMODE_MESSAGE;
        // SAFETY: a name that ends with a zero, and no attributes.
        let made = unsafe {
            let access = PIPE_ACCESS_INBOUND | how;
            CreateNamedPipeW(wide.as_ptr(), access, messages, 1, 4096, 4096, 0, std::ptr::null())
        };
        // SAFETY: made above, and owned by nothing else.
        let mut reader = PipeReader::from(unsafe { OwnedHandle::from_raw_handle(made) });
        let mut client = std::fs::OpenOptions::new().write(true).open(&name).unwrap();
        client.write_all(b"one message").unwrap();
        client.write_all(b"another").unwrap();
        drop(client);
        let mut parts = Vec::new();
        loop {
            let mut room = [0; 8];
            match reader.read(&mut room).unwrap() {
                0 => break,
                count => parts.push(String::from_utf8_lossy(&room[..count]).into_owned()),
            }
        }
        assert_eq!(parts, ["one mess", "age", "another"], "{how:#x}");
    }
}

/// Uses the kernel's error codes; Wine ignores a write of zero bytes.
#[test]
fn a_read_of_zero_bytes_is_the_end_only_if_the_pipe_has_ended() {
    let of = |reader: &PipeReader, result| super::map_read_result(reader.as_handle(), result);
    let (reader, writer) = pair(PipeOptions::default()).unwrap();
    assert!(of(&reader, Ok(0)).is_none());
    assert!(matches!(of(&reader, Ok(3)), Some(Ok(3))));
    let cancelled = os_error(ERROR_OPERATION_ABORTED);
    assert!(of(&reader, Err(cancelled)).is_none());
    drop(writer);
    assert!(matches!(of(&reader, Ok(0)), Some(Ok(0))));
    for code in [ERROR_BROKEN_PIPE, ERROR_HANDLE_EOF, ERROR_PIPE_NOT_CONNECTED] {
        assert!(matches!(of(&reader, Err(os_error(code))), Some(Ok(0))), "{code}");
    }
    let other = of(&reader, Err(os_error(5))).unwrap().unwrap_err();
    assert_eq!(other.raw_os_error(), Some(5));
    for code in [ERROR_BROKEN_PIPE, ERROR_NO_DATA, ERROR_PIPE_NOT_CONNECTED] {
        let error = super::map_write_result(Err(os_error(code))).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe, "{code}");
    }
}

/// Needs a terminal under Wine.
#[test]
fn a_console_is_a_char_device_and_accepts_a_write() {
    let Ok(console) = std::fs::OpenOptions::new().read(true).write(true).open("CONOUT$") else {
        return crate::base::skipped::skipped(crate::base::skipped::Need::Windows, "no console");
    };
    let handle = Handle::from(console);
    assert_eq!(handle.kind().unwrap(), HandleKind::CharDevice);
    let writer = PipeWriter::from(OwnedHandle::from(handle));
    assert!(!writer.has_room(), "it may be stopped");
    let mut slot = [Slot::Write(writer, Arc::new(b"\r".to_vec()), 0)];
    assert_eq!(crate::base::wait::any(&mut slot, None).unwrap(), 1);
    assert!(matches!(slot, [Slot::WriteDone(.., Ok(1))]), "{slot:?}");
}

#[test]
fn ends_and_flags_are_send_and_sync() {
    fn shared<T: Send + Sync>() {}
    shared::<(Handle, PipeReader, PipeWriter, Wake)>();
    fn sent<T: Send>() {}
    sent::<Slot<'static>>();
}

#[test]
fn a_file_of_unknown_mode_is_written_at_its_position() {
    let path = std::env::temp_dir().join(format!("pipewright-unknown-{}", std::process::id()));
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(b"kept ").unwrap();
    let file = OwnedHandle::from(file);
    for piece in [&b"and "[..], b"more"] {
        assert_eq!(super::calls::write_unknown(&file, piece).unwrap(), piece.len());
    }
    drop(file);
    let found = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(found, b"kept and more");
    for mode in MODES {
        let options = PipeOptions { write: mode, ..PipeOptions::default() };
        let (mut reader, writer) = pair(options).unwrap();
        let writer = OwnedHandle::from(writer);
        assert_eq!(super::calls::write_unknown(&writer, b"x").unwrap(), 1);
        assert_eq!(reader.read(&mut [0; 4]).unwrap(), 1);
    }
}

// A model of the kernel's buffering of pipe writes, from public knowledge.
//
// Each write is an entry, whose bytes are copied when it is made. It is done when the pipe's quota
// covers the unread part. A read takes from the entries in order, including pending ones. A cancel
// removes an entry, even if it was read in part. The model was never compared with that kernel.
mod npfs {
    use std::collections::VecDeque;

    const KIB: usize = 1 << 10;

    #[derive(Debug)]
    struct QueueEntry {
        id: usize,
        bytes: Vec<u8>,
        read: usize,
        /// Its share of the quota: negative if more than that was read of it.
        quota: isize,
        is_done: bool,
    }

    impl QueueEntry {
        fn left(&self) -> usize {
            self.bytes.len() - self.read
        }
    }

    #[derive(Debug)]
    struct Pipe {
        quota: isize,
        entries: VecDeque<QueueEntry>,
        made: usize,
        done: Vec<usize>,
    }

    impl Pipe {
        fn new(quota: usize) -> Pipe {
            Pipe { quota: quota as isize, entries: VecDeque::new(), made: 0, done: Vec::new() }
        }

        fn room(&self) -> isize {
            self.quota - self.entries.iter().map(|entry| entry.quota).sum::<isize>()
        }

        /// Starts a write.
        fn write(&mut self, bytes: &[u8]) -> usize {
            let quota = self.room().min(bytes.len() as isize);
            let is_done = quota == bytes.len() as isize;
            let id = self.made;
            self.made += 1;
            self.entries.push_back(QueueEntry {
                id,
                bytes: bytes.to_vec(),
                read: 0,
                quota,
                is_done,
            });
            if is_done {
                self.done.push(id);
            }
            id
        }

        fn is_done(&self, id: usize) -> bool {
            self.done.contains(&id)
        }

        fn read(&mut self, most: usize) -> Vec<u8> {
            let mut taken = Vec::new();
            while let Some(first) = self.entries.front_mut().filter(|_| taken.len() < most) {
                let count = first.left().min(most - taken.len());
                taken.extend_from_slice(&first.bytes[first.read..first.read + count]);
                first.read += count;
                first.quota -= count as isize;
                if first.left() == 0 {
                    if !first.is_done {
                        self.done.push(first.id);
                    }
                    self.entries.pop_front();
                }
            }
            self.complete();
            taken
        }

        /// Gives free quota to the pending entries. The kernel compares the sums as unsigned numbers,
        /// so a negative sum counts as enough, and its entry is not completed.
        fn complete(&mut self) {
            for at in 0..self.entries.len() {
                let room = self.room().max(0);
                let entry = &mut self.entries[at];
                let lacks = entry.left() as isize - entry.quota;
                if entry.is_done || entry.quota < 0 || lacks <= 0 {
                    continue;
                }
                entry.quota += lacks.min(room);
                if entry.quota == entry.left() as isize {
                    entry.is_done = true;
                    self.done.push(entry.id);
                }
            }
        }

        /// Cancels a write. `false`: it was done before.
        fn cancel(&mut self, id: usize) -> bool {
            let is_pending = !self.is_done(id);
            self.entries.retain(|entry| entry.id != id || !is_pending);
            is_pending
        }
    }

    /// Feeds bytes to a reader, and wakes the writer after each read. Returns the input and the bytes
    /// read.
    fn fed(
        cancels_at_each_wake: bool,
        quota: usize,
        piece: usize,
        read: usize,
    ) -> (Vec<u8>, Vec<u8>) {
        let input: Vec<u8> = (0..4 * 64 * KIB).map(|at| (at / 251) as u8).collect();
        let (mut pipe, mut written, mut pending, mut output) =
            (Pipe::new(quota), 0, None, Vec::new());
        loop {
            while let Some(rest) = input.get(written..).filter(|rest| !rest.is_empty()) {
                let next = &rest[..piece.min(rest.len())];
                let id = *pending.get_or_insert_with(|| pipe.write(next));
                if !pipe.is_done(id) {
                    break;
                }
                (pending, written) = (None, written + next.len());
            }
            let taken = pipe.read(read);
            if taken.is_empty() {
                return (input, output);
            }
            output.extend(taken);
            if let Some(id) = pending.filter(|_| cancels_at_each_wake) {
                if pipe.cancel(id) {
                    pending = None;
                }
            }
        }
    }

    #[test]
    fn a_cancelled_and_repeated_write_arrives_twice_if_a_read_crossed_into_it() {
        let (input, output) = fed(true, 64 * KIB, 64 * KIB, 81_920);
        assert_eq!(output.len() - input.len(), 16_384 * 3, "as in the audit: 16 KiB each time");
        // Reads that match the quota exactly do not show it.
        let (input, output) = fed(true, 64 * KIB, 64 * KIB, 64 * KIB);
        assert!(input == output);
    }

    #[test]
    fn a_pending_write_arrives_once_for_every_read_size() {
        for quota in [4, 16, 64, 256].map(|kib| kib * KIB) {
            for piece in [1_000, 4 * KIB, 64 * KIB, 100_000] {
                for read in [1_009, 4 * KIB, 64 * KIB, 81_920, 128 * KIB] {
                    let (input, output) = fed(false, quota, piece, read);
                    assert!(input == output, "{quota} {piece} {read}: {} bytes", output.len());
                }
            }
        }
    }
}
