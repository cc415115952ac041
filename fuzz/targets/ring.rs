//! Writes any bytes into the ring and any values into its words, step by step while the host reads.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use pipewright_fuzz::options;
use pipewright_ipc::SharedMemory;
use pipewright_os::channel::shm::{ShmOptions, Written};
use pipewright_tests::hostile::{frame, outcome, send, send_hello_with_memory};

const RING_BYTES: usize = 64 << 10;
const WAKE: u8 = 9;

/// A step of the worker.
#[derive(Debug, Arbitrary)]
enum Act {
    /// Write any bytes anywhere in its ring.
    Fill(u16, Vec<u8>),
    /// Write a record whose fields are plausible.
    Record { at: u8, length: u16, kind: u8, flags: u8, after: u8, total: u16 },
    /// Publish any value in one of its words.
    Publish(u8, u64),
    /// Publish that this many more lines are filled.
    Advance(u8),
    /// Wake the host.
    Wake,
    /// Send any bytes through the socket.
    Send(Vec<u8>),
}

fuzz_target!(|acts: Vec<Act>| {
    let memory = ShmOptions { bytes: RING_BYTES, prefault: false };
    let Ok(mut ours) = Written::create(memory) else { return };
    outcome(
        move |end| {
            send_hello_with_memory(end, &ours);
            let mut head = 0_u64;
            for act in acts {
                match act {
                    Act::Fill(at, bytes) => fill(&mut ours, usize::from(at), &bytes),
                    Act::Record { at, length, kind, flags, after, total } => {
                        let mut record = [0; 32];
                        record[..4].copy_from_slice(&u32::from(length).to_le_bytes());
                        record[4..6].copy_from_slice(&[kind, flags]);
                        record[16..24].copy_from_slice(&u64::from(after).to_le_bytes());
                        record[24..].copy_from_slice(&u64::from(total).to_le_bytes());
                        fill(&mut ours, usize::from(at) * 64 % RING_BYTES, &record);
                    }
                    Act::Publish(word, value) => ours.publish(usize::from(word % 3), value),
                    Act::Advance(lines) => {
                        head = head.wrapping_add(u64::from(lines) * 64);
                        ours.publish(0, head);
                    }
                    Act::Wake => send(end, &frame(WAKE, 0, 0, 0, b"")),
                    Act::Send(bytes) => send(end, &bytes),
                }
            }
        },
        &options(SharedMemory::Auto),
    );
});

fn fill(ours: &mut Written, at: usize, bytes: &[u8]) {
    let room = ours.data().get_mut(at..).unwrap_or_default();
    for (place, byte) in room.iter_mut().zip(bytes) {
        *place = *byte;
    }
}
