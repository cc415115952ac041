//! Tests for the results of a wait, and for what it leaves behind.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::super::{Slot, any};
use crate::base::handle::{own_handle_count, wait_for_fewer_handles};
use crate::base::pipe::{Mode, PipeOptions, PipeReader, PipeWriter, pair};
use crate::base::wake::Wake;

const SOON: Duration = Duration::from_millis(30);

fn read_end() -> (PipeReader, PipeWriter) {
    pair(PipeOptions { read: Mode::Async, ..PipeOptions::default() }).unwrap()
}

fn write_end(capacity: usize) -> (PipeReader, PipeWriter) {
    let options =
        PipeOptions { write: Mode::Async, capacity: Some(capacity), ..Default::default() };
    pair(options).unwrap()
}

/// Waits until the slot is done.
fn read(slot: &mut Slot<'static>) -> usize {
    assert_eq!(any(std::slice::from_mut(slot), None).unwrap(), 1);
    let Slot::ReadDone(pipe, buffer, result) = std::mem::take(slot) else { panic!("{slot:?}") };
    let count = result.unwrap();
    *slot = Slot::Read(pipe, buffer);
    count
}

fn bytes_of(slot: Slot<'_>) -> Vec<u8> {
    match slot {
        Slot::Read(_, buffer) | Slot::ReadDone(_, buffer, _) => buffer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn data_and_the_end_arrive_in_order() {
    let (reader, mut writer) = read_end();
    writer.write_all(b"one").unwrap();
    let mut slot = Slot::Read(reader, Vec::new());
    assert_eq!(read(&mut slot), 3);
    writer.write_all(b"two").unwrap();
    drop(writer);
    assert_eq!(read(&mut slot), 3);
    assert_eq!(read(&mut slot), 0);
    assert_eq!(read(&mut slot), 0);
    assert_eq!(bytes_of(slot), b"onetwo");
}

#[test]
fn one_wait_completes_two_streams_and_a_flag() {
    let (ends, wake) = ([read_end(), read_end()], Wake::new().unwrap());
    let [(out, mut out_writer), (err, err_writer)] = ends;
    out_writer.write_all(b"out").unwrap();
    drop(err_writer);
    wake.raise();
    let mut slots = [Slot::Read(out, Vec::new()), Slot::Event(&wake), Slot::Read(err, Vec::new())];
    assert_eq!(any(&mut slots, None).unwrap(), 3);
    assert!(matches!(slots[0], Slot::ReadDone(.., Ok(3))), "{slots:?}");
    assert!(matches!(slots[1], Slot::EventDone), "{slots:?}");
    assert!(matches!(slots[2], Slot::ReadDone(.., Ok(0))), "{slots:?}");
    assert_eq!(any(&mut slots, None).unwrap(), 0, "nothing is left to wait for");
}

#[test]
fn a_write_of_zero_bytes_is_not_the_end() {
    let (reader, writer) = read_end();
    // Directly to the kernel: the crate's own functions skip such writes.
    let nothing = |writer: &PipeWriter| writer.end().write_nothing();
    nothing(&writer);
    let mut slot = [Slot::Read(reader, Vec::new())];
    assert_eq!(any(&mut slot, Some(Instant::now() + SOON)).unwrap(), 0, "{slot:?}");
    let [mut slot] = slot;
    thread::scope(|scope| {
        scope.spawn(|| {
            nothing(&writer);
            nothing(&writer);
            (&writer).write_all(b"more").unwrap();
        });
        assert_eq!(read(&mut slot), 4);
    });
    nothing(&writer);
    drop(writer);
    assert_eq!(read(&mut slot), 0);
}

#[test]
fn an_abandoned_read_loses_no_byte() {
    const BYTES: usize = 256 << 10;
    let (reader, mut writer) = read_end();
    let writing = thread::spawn(move || {
        for chunk in (0..BYTES).map(|i| i as u8).collect::<Vec<_>>().chunks(997) {
            writer.write_all(chunk).unwrap();
        }
    });
    let mut slot = [Slot::Read(reader, Vec::new())];
    loop {
        // No time at all: each wait starts the read, and most of them cancel it.
        any(&mut slot, Some(Instant::now())).unwrap();
        let [taken] = std::mem::take(&mut slot);
        slot = match taken {
            Slot::ReadDone(_, buffer, Ok(0)) => {
                let expected: Vec<u8> = (0..BYTES).map(|i| i as u8).collect();
                assert!(buffer == expected, "{} of {BYTES} bytes, or others", buffer.len());
                break;
            }
            Slot::ReadDone(pipe, buffer, Ok(_)) | Slot::Read(pipe, buffer) => {
                [Slot::Read(pipe, buffer)]
            }
            other => panic!("{other:?}"),
        };
    }
    writing.join().unwrap();
}

#[test]
fn an_abandoned_write_writes_no_byte_twice() {
    const BYTES: usize = 512 << 10;
    let (mut reader, writer) = write_end(16 << 10);
    let bytes: Arc<Vec<u8>> = Arc::new((0..BYTES).map(|i| (i / 7) as u8).collect());
    let expected = Arc::clone(&bytes);
    let reading = thread::spawn(move || {
        let mut all = Vec::new();
        let mut piece = [0; 1009];
        while let Ok(count @ 1..) = std::io::Read::read(&mut reader, &mut piece) {
            all.extend_from_slice(&piece[..count]);
        }
        assert!(all == *expected, "{} of {BYTES} bytes, or others", all.len());
    });
    let (mut slot, mut written) = ([Slot::Write(writer, Arc::clone(&bytes), 0)], 0);
    while written < BYTES {
        any(&mut slot, Some(Instant::now() + Duration::from_micros(200))).unwrap();
        let [taken] = std::mem::take(&mut slot);
        slot = match taken {
            Slot::WriteDone(pipe, bytes, Ok(count)) => {
                written += count;
                [Slot::Write(pipe, bytes, written)]
            }
            waiting @ Slot::Write(..) => [waiting],
            other => panic!("{other:?}"),
        };
    }
    drop(slot);
    reading.join().unwrap();
}

/// Uses sizes that show a cancelled and repeated write (`pipe/windows/npfs.rs`).
#[test]
fn an_unfinished_write_stays_pending_between_waits() {
    const PIECE: usize = 64 << 10;
    let (mut reader, writer) = write_end(PIECE);
    let bytes: Arc<Vec<u8>> = Arc::new((0..4 * PIECE).map(|at| (at / 251) as u8).collect());
    let (mut slot, mut written, mut read) = ([Slot::Write(writer, bytes, 0)], 0, Vec::new());
    let mut wait_a_little = |slot: &mut [Slot<'static>; 1]| {
        let done = any(slot, Some(Instant::now() + SOON)).unwrap();
        if let [Slot::WriteDone(_, _, Ok(count))] = *slot {
            let taken = std::mem::take(&mut slot[0]);
            let Slot::WriteDone(pipe, bytes, _) = taken else { return (0, 0) };
            written += count;
            slot[0] = Slot::Write(pipe, bytes, written);
        }
        (done, written)
    };
    while wait_a_little(&mut slot).0 > 0 {}
    // A reader sees the bytes, and continues to see them, between the waits.
    for _ in 0..3 {
        let (done, held) = wait_a_little(&mut slot);
        assert_eq!((done, reader.available().unwrap()), (0, held + PIECE));
    }
    while read.len() < 4 * PIECE {
        let mut room = vec![0; 81_920];
        let count = std::io::Read::read(&mut reader, &mut room).unwrap();
        read.extend_from_slice(&room[..count]);
        wait_a_little(&mut slot);
    }
    let [Slot::Write(pipe, bytes, _)] = slot else { panic!("{slot:?}") };
    drop(pipe);
    std::io::Read::read_to_end(&mut reader, &mut read).unwrap();
    assert!(read == *bytes, "{} bytes, or others", read.len());
}

#[test]
fn only_a_write_of_the_same_bytes_continues_a_pending_write() {
    const HOLDS: usize = 16 << 10;
    for blocks in [true, false] {
        let (mut reader, writer) = write_end(HOLDS);
        while writer.try_write(&[7; 4096]).is_ok() {}
        let mut slot = [Slot::Write(writer, Arc::new(vec![8; 100]), 0)];
        assert_eq!(any(&mut slot, Some(Instant::now())).unwrap(), 0);
        let [Slot::Write(writer, bytes, _)] = slot else { panic!("{slot:?}") };
        assert!(writer.try_write(&bytes).is_err());
        std::io::Read::read_exact(&mut reader, &mut vec![0; HOLDS]).unwrap();
        // The end of the write may be reported a moment later.
        let again = || if blocks { (&writer).write(&bytes) } else { writer.try_write(&bytes) };
        let again = std::iter::repeat_with(again).find_map(Result::ok);
        assert_eq!(again, Some(100), "{blocks}");
        // Cancelled by other bytes, in a pipe that is full again.
        while writer.try_write(&[7; 4096]).is_ok() {}
        let mut slot = [Slot::Write(writer, bytes, 0)];
        assert_eq!(any(&mut slot, Some(Instant::now())).unwrap(), 0);
        let [Slot::Write(writer, ..)] = slot else { panic!("{slot:?}") };
        assert!(writer.try_write(&[9]).is_err());
        drop(writer);
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut reader, &mut rest).unwrap();
        assert_eq!(rest.iter().filter(|byte| **byte == 8).count(), 100, "{blocks}");
    }
}

#[test]
fn a_full_pipe_is_waited_for_and_a_broken_one_is_an_error() {
    let (mut reader, writer) = write_end(16 << 10);
    while writer.try_write(&[7; 4096]).is_ok() {}
    let bytes = Arc::new(vec![8; 4096]);
    let mut slot = [Slot::Write(writer, bytes, 0)];
    assert_eq!(any(&mut slot, Some(Instant::now() + SOON)).unwrap(), 0);
    let mut taken = vec![0; 16 << 10];
    std::io::Read::read_exact(&mut reader, &mut taken).unwrap();
    assert_eq!(any(&mut slot, None).unwrap(), 1);
    let [Slot::WriteDone(writer, bytes, Ok(4096))] = slot else { panic!("{slot:?}") };
    drop(reader);
    let mut slot = [Slot::Write(writer, bytes, 0)];
    assert_eq!(any(&mut slot, None).unwrap(), 1);
    let [Slot::WriteDone(.., Err(error))] = slot else { panic!("{slot:?}") };
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
}

#[test]
fn another_thread_ends_the_wait() {
    let wake = Wake::new().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::park_timeout(SOON);
            wake.raise();
        });
        let (reader, _writer) = read_end();
        let mut slots = [Slot::Read(reader, Vec::new()), Slot::Event(&wake)];
        assert_eq!(any(&mut slots, None).unwrap(), 1);
        assert!(matches!(slots, [Slot::Read(..), Slot::EventDone]), "{slots:?}");
    });
}

#[test]
fn a_wait_ends_at_its_deadline_and_not_before() {
    let (reader, _writer) = read_end();
    let wake = Wake::new().unwrap();
    for left in [0, 1, 300, 2_000, 17_000, 40_000].map(Duration::from_micros) {
        for with in [true, false] {
            let until = Instant::now() + left;
            let mut slots = [Slot::Event(&wake), Slot::Off];
            let slots = if with { &mut slots[..] } else { &mut [][..] };
            assert_eq!(any(slots, Some(until)).unwrap(), 0);
            assert!(Instant::now() >= until, "{left:?} {with}");
        }
    }
    let mut slots = [Slot::Read(reader, Vec::new())];
    let until = Instant::now() + SOON;
    assert_eq!(any(&mut slots, Some(until)).unwrap(), 0);
    assert!(Instant::now() >= until);
    assert_eq!(any(&mut [], None).unwrap(), 0);
    assert_eq!(any(&mut [Slot::Off], None).unwrap(), 0);
}

#[test]
fn more_handles_than_the_limit_of_one_wait() {
    const SLOTS: usize = 200;
    let wakes: Vec<Wake> = (0..SLOTS).map(|_| Wake::new().unwrap()).collect();
    let pipes: Vec<_> = (0..SLOTS).map(|_| read_end()).collect();
    let mut slots: Vec<Slot<'_>> = wakes.iter().map(|it| Slot::Event(it)).collect();
    let (readers, writers): (Vec<_>, Vec<_>) = pipes.into_iter().unzip();
    slots.extend(readers.into_iter().map(|reader| Slot::Read(reader, Vec::new())));
    assert_eq!(any(&mut slots, Some(Instant::now() + SOON)).unwrap(), 0);
    thread::scope(|scope| {
        let (done, is_done) = mpsc::channel::<()>();
        let (wakes, writers) = (&wakes, &writers);
        scope.spawn(move || {
            for place in [199, 0, 60, 61, 62, 63, 64, 130] {
                wakes[place].raise();
                is_done.recv().unwrap();
                (&writers[place]).write_all(b"x").unwrap();
                is_done.recv().unwrap();
            }
        });
        for place in [199, 0, 60, 61, 62, 63, 64, 130] {
            assert_eq!(any(&mut slots, None).unwrap(), 1);
            assert!(matches!(slots[place], Slot::EventDone), "{place}");
            slots[place] = Slot::Off;
            done.send(()).unwrap();
            assert_eq!(any(&mut slots, None).unwrap(), 1);
            assert!(matches!(slots[SLOTS + place], Slot::ReadDone(.., Ok(1))), "{place}");
            slots[SLOTS + place] = Slot::Off;
            done.send(()).unwrap();
        }
    });
    wakes.iter().for_each(Wake::raise);
    assert_eq!(any(&mut slots, None).unwrap(), SLOTS - 8);
}

#[test]
fn a_synchronous_pipe_is_checked_periodically() {
    let (reader, writer) = pair(PipeOptions::default()).unwrap();
    let mut slot = [Slot::Read(reader, Vec::new())];
    assert_eq!(any(&mut slot, Some(Instant::now() + SOON)).unwrap(), 0);
    let [mut slot] = slot;
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::park_timeout(SOON);
            (&writer).write_all(b"sync").unwrap();
        });
        assert_eq!(read(&mut slot), 4);
    });
    drop(writer);
    assert_eq!(read(&mut slot), 0);
}

#[test]
fn a_sleeping_reader_does_not_block_a_synchronous_write() {
    const BYTES: usize = 200_000;
    let (mut reader, writer) = pair(PipeOptions::default()).unwrap();
    let bytes: Arc<Vec<u8>> = Arc::new((0..BYTES).map(|i| (i / 5) as u8).collect());
    let expected = Arc::clone(&bytes);
    let (mut slot, mut written) = ([Slot::Write(writer, bytes, 0)], 0);
    let mut step = |limit: Option<Duration>| {
        let until = limit.map(|limit| Instant::now() + limit);
        let done = any(&mut slot, until).unwrap();
        let [taken] = std::mem::take(&mut slot);
        slot = match taken {
            Slot::WriteDone(pipe, bytes, result) => {
                written += result.unwrap();
                [Slot::Write(pipe, bytes, written)]
            }
            waiting => [waiting],
        };
        (done, written)
    };
    // Until the pipe is full.
    while step(Some(SOON)).0 > 0 {}
    let (done, held) = step(Some(SOON));
    assert_eq!(done, 0);
    assert!((1..BYTES).contains(&held), "{held}");
    let reading = thread::spawn(move || {
        let mut all = Vec::new();
        std::io::Read::read_to_end(&mut reader, &mut all).unwrap();
        assert!(all == *expected, "{} of {BYTES} bytes, or others", all.len());
    });
    // Now and then with no time at all: most of these are cancelled.
    let mut limits =
        [Some(Duration::ZERO), Some(Duration::from_micros(100)), None].into_iter().cycle();
    while step(limits.next().unwrap()).1 < BYTES {}
    drop(slot);
    reading.join().unwrap();
}

#[test]
fn an_abandoned_write_does_not_arrive_later() {
    for write in [Mode::Sync, Mode::Async] {
        let (mut reader, writer) = pair(PipeOptions { write, ..PipeOptions::default() }).unwrap();
        let mut held = 0;
        let mut slot = Slot::Write(writer, Arc::new(vec![7; 10_000]), 0);
        while any(std::slice::from_mut(&mut slot), Some(Instant::now() + SOON)).unwrap() > 0 {
            let Slot::WriteDone(pipe, bytes, Ok(count)) = slot else { panic!("{slot:?}") };
            held += count;
            slot = Slot::Write(pipe, bytes, 0);
        }
        drop(slot);
        let mut all = Vec::new();
        std::io::Read::read_to_end(&mut reader, &mut all).unwrap();
        assert_eq!(all.len(), held, "{write:?}");
    }
}

#[test]
fn many_waits_leave_no_handles_open() {
    const ROUNDS: usize = 2000;
    let round = |lower: bool| {
        let ((reader, mut writer), wake) = (read_end(), Wake::new().unwrap());
        let copy = reader.try_clone().unwrap();
        let mut slots = [Slot::Read(reader, Vec::new()), Slot::Event(&wake)];
        assert_eq!(any(&mut slots, Some(Instant::now())).unwrap(), 0);
        writer.write_all(b"x").unwrap();
        if lower {
            writer.close().unwrap();
        }
        assert_eq!(any(&mut slots, None).unwrap(), 1);
        drop(copy);
    };
    // After the threads and buffers that the system and the C library keep after the first time.
    (0..20).for_each(|_| round(true));
    let before = own_handle_count().unwrap();
    (0..ROUNDS).for_each(|i| round(i % 2 == 0));
    wait_for_fewer_handles(before + ROUNDS as u32 / 4);
}
