//! The thread that prints. It alone writes to stdout and stderr, so that a slow reader delays nothing else.

use std::io::{self, Write};
use std::mem;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use pipewright::Source;
use pipewright_os::base::service_thread;

use super::error::{OutputError, OutputErrorKind};
use super::queue::{Data, Item, Queue};
use super::spool::BLOCK_BYTES;

/// The pause before a write is tried again, if another program has made our stream non-blocking.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// Wakes the driver.
pub(crate) type Waker = Box<dyn Fn() + Send + Sync>;

/// The streams to print to.
struct Streams<O, E> {
    stdout: O,
    stderr: E,
}

impl<O: Write, E: Write> Streams<O, E> {
    fn stream(&mut self, to: Source) -> &mut dyn Write {
        match to {
            Source::Stdout => &mut self.stdout,
            Source::Stderr => &mut self.stderr,
        }
    }
}

/// Records the end of the thread, also after a panic of a writer.
struct End(Arc<Queue>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.note_end(thread::panicking());
    }
}

/// Starts the thread.
pub(super) fn start(
    queue: Arc<Queue>,
    stdout: impl Write + Send + 'static,
    stderr: impl Write + Send + 'static,
    waker: Waker,
) -> Result<(), OutputError> {
    let print = move || {
        let end = End(queue);
        print_all(&end.0, Streams { stdout, stderr }, &waker);
    };
    service_thread::start_with_default_stack(c"output", print)
        .map_err(|error| OutputError::new(OutputErrorKind::Thread, error))
}

fn print_all(queue: &Queue, mut streams: Streams<impl Write, impl Write>, waker: &Waker) {
    let mut block = vec![0; BLOCK_BYTES as usize];
    // The streams with bytes that their writers may hold back, stdout first.
    let mut unflushed = [false; 2];
    loop {
        let next = queue.next(|| {
            for to in [Source::Stdout, Source::Stderr] {
                flush(&mut streams, &mut unflushed, to, queue, waker);
            }
        });
        let Some(item) = next else { return };
        let to = item.to;
        // Both may be one terminal: the order is that of the calls.
        let other = if to == Source::Stdout { Source::Stderr } else { Source::Stdout };
        flush(&mut streams, &mut unflushed, other, queue, waker);
        unflushed[to as usize] = true;
        if queue.discards(to) {
            continue;
        }
        let mut print = |read: io::Result<&[u8]>| {
            match read {
                Ok(bytes) => {
                    let written = write_all(streams.stream(to), bytes, || queue.discards(to));
                    note(written, queue, to, waker);
                }
                Err(error) => {
                    queue.note_failed_read(to, error);
                    waker();
                }
            }
            // The rest is dropped.
            if queue.discards(to) { Err(()) } else { Ok(()) }
        };
        match Arc::try_unwrap(item) {
            Ok(Item { data: Data::Kept(record), .. }) => {
                let printed = record.read(&mut block, |read| {
                    let is_whole = read.is_ok();
                    print(read).and(if is_whole { Ok(()) } else { Err(()) })
                });
                flush(&mut streams, &mut unflushed, to, queue, waker);
                if printed.is_ok() && !queue.discards(to) {
                    queue.handed_over(&record);
                }
            }
            Ok(Item { data: Data::Memory(buffer), .. }) => drop(print(Ok(buffer.bytes()))),
            Ok(Item { data: Data::Spooled(extents), .. }) => drop(extents.drain(&mut block, print)),
            // It is copied beside the log meanwhile, or may be.
            Err(item) => {
                match &item.data {
                    Data::Memory(buffer) => drop(print(Ok(buffer.bytes()))),
                    Data::Spooled(extents) => drop(extents.read(&mut block, print)),
                    Data::Kept(_) => {}
                }
                flush(&mut streams, &mut unflushed, to, queue, waker);
            }
        }
    }
}

/// Flushes a stream, if its writer may hold bytes back.
fn flush(
    streams: &mut Streams<impl Write, impl Write>,
    unflushed: &mut [bool; 2],
    to: Source,
    queue: &Queue,
    waker: &Waker,
) {
    if mem::take(&mut unflushed[to as usize]) && !queue.discards(to) {
        note(streams.stream(to).flush(), queue, to, waker);
    }
}

/// Records a failed write, and wakes the driver.
fn note(result: io::Result<()>, queue: &Queue, to: Source, waker: &Waker) {
    if let Err(error) = result {
        queue.note_failed_write(to, error);
        waker();
    }
}

/// Writes all bytes, or stops early if they are no longer wanted.
fn write_all(to: &mut dyn Write, bytes: &[u8], unwanted: impl Fn() -> bool) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match to.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => rest = rest.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if unwanted() {
                    return Ok(());
                }
                thread::park_timeout(RETRY_PAUSE);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
