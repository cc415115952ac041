//! Tests for the results of a task's wait, and for what it leaves to the kernel.

use std::future::poll_fn;
use std::io::{Read as _, Write as _};
use std::os::windows::io::OwnedHandle;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

use tokio::runtime::{Builder, Runtime};

use super::super::Watch;
use crate::base::handle::{own_handle_count, wait_for_fewer_handles};
use crate::base::pipe::{Mode, PipeOptions, PipeReader, PipeWriter, pair};
use crate::base::wait::Slot;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn read_end() -> (PipeReader, PipeWriter) {
    pair(PipeOptions { read: Mode::Async, ..PipeOptions::default() }).unwrap()
}

fn write_end() -> (PipeReader, PipeWriter) {
    let options =
        PipeOptions { write: Mode::Async, capacity: Some(16 << 10), ..Default::default() };
    pair(options).unwrap()
}

fn poll_once(watch: &mut Watch, slot: &mut Slot<'_>) -> Poll<usize> {
    let mut cx = Context::from_waker(Waker::noop());
    watch.poll_wait(&mut cx, std::slice::from_mut(slot), None).map(Result::unwrap)
}

/// Waits for the slot, and returns the bytes read.
async fn read(watch: &mut Watch, slot: &mut Slot<'static>) -> Vec<u8> {
    let slots = std::slice::from_mut(slot);
    assert_eq!(poll_fn(|cx| watch.poll_wait(cx, slots, None)).await.unwrap(), 1);
    let Slot::ReadDone(pipe, bytes, Ok(_)) = std::mem::take(slot) else { panic!("{slot:?}") };
    *slot = Slot::Read(pipe, Vec::new());
    bytes
}

#[test]
fn data_and_the_end_are_found_after_an_abandoned_poll() {
    runtime().block_on(async {
        let (reader, mut writer) = read_end();
        let (mut watch, mut slot) = (Watch::default(), Slot::Read(reader, Vec::new()));
        for text in [b"one", b"two"] {
            assert!(poll_once(&mut watch, &mut slot).is_pending());
            writer.write_all(text).unwrap();
            assert_eq!(read(&mut watch, &mut slot).await, text);
        }
        assert!(poll_once(&mut watch, &mut slot).is_pending());
        drop(writer);
        assert_eq!(read(&mut watch, &mut slot).await, b"");
        assert_eq!(read(&mut watch, &mut slot).await, b"");
    });
}

#[test]
fn a_writer_with_a_pending_write_releases_its_handle() {
    runtime().block_on(async {
        let (mut reader, writer) = write_end();
        while writer.try_write(&[7; 4096]).is_ok() {}
        let mut watch = Watch::default();
        let mut slot = Slot::Write(writer, Arc::new(vec![8; 100]), 0);
        assert!(poll_once(&mut watch, &mut slot).is_pending());
        let Slot::Write(writer, ..) = slot else { panic!("{slot:?}") };
        drop(OwnedHandle::from(writer));
        // The end of the input arrives, and the cancelled bytes do not.
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        assert!(all.iter().all(|byte| *byte == 7));
        drop(watch);
    });
}

/// Windows cancels the pending I/O of a thread that ends.
#[test]
fn a_wait_outlives_the_thread_that_started_it() {
    let ((reader, mut writer), (full, filler)) = (read_end(), write_end());
    let bytes = Arc::new(vec![7; 40_000]);
    let begin = |mut slot: Slot<'static>| {
        thread::spawn(move || {
            runtime().block_on(async {
                let mut watch = Watch::default();
                while poll_once(&mut watch, &mut slot).is_ready() {
                    let Slot::WriteDone(pipe, bytes, Ok(_)) = slot else { panic!("{slot:?}") };
                    slot = Slot::Write(pipe, bytes, 0);
                }
                (watch, slot)
            })
        })
    };
    let reads = begin(Slot::Read(reader, Vec::new())).join().unwrap();
    let writes = begin(Slot::Write(filler, bytes, 0)).join().unwrap();
    runtime().block_on(async {
        let (mut watch, mut slot) = reads;
        writer.write_all(b"late").unwrap();
        assert_eq!(read(&mut watch, &mut slot).await, b"late");
        let (mut watch, mut slot) = writes;
        let drained = thread::spawn(move || {
            let mut all = Vec::new();
            { full }.read_to_end(&mut all).unwrap();
            all.len()
        });
        let slots = std::slice::from_mut(&mut slot);
        assert_eq!(poll_fn(|cx| watch.poll_wait(cx, slots, None)).await.unwrap(), 1);
        let Slot::WriteDone(_, _, Ok(count)) = std::mem::take(&mut slot) else { panic!() };
        drop(watch);
        // The capacity of the pipe, and this write.
        assert_eq!(drained.join().unwrap(), (16 << 10) + count);
    });
}

#[test]
fn an_abandoned_write_arrives_neither_later_nor_twice() {
    runtime().block_on(async {
        let ((mut reader, writer), mut held) = (write_end(), 0);
        let mut watch = Watch::default();
        let mut slot = Slot::Write(writer, Arc::new(vec![7; 10_000]), 0);
        while let Poll::Ready(1) = poll_once(&mut watch, &mut slot) {
            let Slot::WriteDone(pipe, bytes, Ok(count)) = slot else { panic!("{slot:?}") };
            held += count;
            slot = Slot::Write(pipe, bytes, 0);
        }
        // Another write in its place, and then none.
        let Slot::Write(pipe, ..) = slot else { panic!("{slot:?}") };
        let mut slot = Slot::Write(pipe, Arc::new(vec![8; 10_000]), 0);
        assert!(poll_once(&mut watch, &mut slot).is_pending());
        drop(watch);
        drop(slot);
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        assert!(all == vec![7; held], "{} of {held}", all.len());
    });
}

#[test]
fn a_write_of_zero_bytes_is_not_the_end_and_later_data_is_found() {
    runtime().block_on(async {
        let (reader, mut writer) = read_end();
        let (mut watch, mut slot) = (Watch::default(), Slot::Read(reader, Vec::new()));
        assert!(poll_once(&mut watch, &mut slot).is_pending());
        writer.end().write_nothing();
        assert!(poll_once(&mut watch, &mut slot).is_pending());
        writer.write_all(b"more").unwrap();
        assert_eq!(read(&mut watch, &mut slot).await, b"more");
    });
}

#[test]
fn a_synchronous_pipe_is_checked_periodically() {
    runtime().block_on(async {
        let (reader, mut writer) = pair(PipeOptions::default()).unwrap();
        let (mut watch, mut slot) = (Watch::default(), Slot::Read(reader, Vec::new()));
        assert!(poll_once(&mut watch, &mut slot).is_pending());
        writer.write_all(b"seen").unwrap();
        assert_eq!(read(&mut watch, &mut slot).await, b"seen");
    });
}

#[test]
fn another_pipe_at_the_same_index_is_another_wait() {
    runtime().block_on(async {
        let (mut watch, mut slots) = (Watch::default(), Vec::new());
        for round in 0..50 {
            let (reader, mut writer) = read_end();
            let mut slot = Slot::Read(reader, Vec::new());
            assert!(poll_once(&mut watch, &mut slot).is_pending());
            if round % 2 == 0 {
                writer.write_all(b"x").unwrap();
                assert_eq!(read(&mut watch, &mut slot).await, b"x");
            }
            // The numbers of closed handles are reused.
            if round % 3 == 0 {
                slots.push((slot, writer));
            }
        }
    });
}

#[test]
fn many_task_waits_leave_no_handles_open() {
    const ROUNDS: u32 = 300;
    let round = || {
        runtime().block_on(async {
            let ((reader, _writer), (_reader, writer)) = (read_end(), write_end());
            let mut watch = Watch::default();
            let mut slots = [
                Slot::Read(reader, Vec::new()),
                Slot::Write(writer, Arc::new(vec![0; 100_000]), 0),
            ];
            let mut cx = Context::from_waker(Waker::noop());
            while watch.poll_wait(&mut cx, &mut slots, None).is_ready() {
                if let Slot::WriteDone(pipe, bytes, _) = std::mem::take(&mut slots[1]) {
                    slots[1] = Slot::Write(pipe, bytes, 0);
                }
            }
        });
    };
    (0..20).for_each(|_| round());
    let before = own_handle_count().unwrap();
    (0..ROUNDS).for_each(|_| round());
    wait_for_fewer_handles(before + ROUNDS / 4);
}
