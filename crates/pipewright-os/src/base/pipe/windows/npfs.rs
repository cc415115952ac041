//! A model of the kernel's buffering of pipe writes, from public knowledge.
//!
//! Each write is an entry, whose bytes are copied when it is made. It is done when the pipe's quota
//! covers the unread part. A read takes from the entries in order, including pending ones. A cancel
//! removes an entry, even if it was read in part. The model was never compared with that kernel.

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
        self.entries.push_back(QueueEntry { id, bytes: bytes.to_vec(), read: 0, quota, is_done });
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
fn fed(cancels_at_each_wake: bool, quota: usize, piece: usize, read: usize) -> (Vec<u8>, Vec<u8>) {
    let input: Vec<u8> = (0..4 * 64 * KIB).map(|at| (at / 251) as u8).collect();
    let (mut pipe, mut written, mut pending, mut output) = (Pipe::new(quota), 0, None, Vec::new());
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
