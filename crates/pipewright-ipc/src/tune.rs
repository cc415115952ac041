//! Measures the message length from which on shared memory is faster on this machine.

use std::thread;
use std::time::{Duration, Instant};

use pipewright_os::channel::handle_channel;

use crate::channel::Channel;
use crate::error::{Error, ErrorKind};
use crate::options::{Options, SharedMemory};

/// The lengths to measure, in bytes.
const LENGTHS: [usize; 8] = [512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];

/// The number of round trips for each length and each connection. The median counts.
const ROUNDS: usize = 101;

impl Options {
    /// Returns the options with the best [threshold](Self::threshold_bytes) for this machine in its current state. From
    /// that length on, a message through shared memory, with a wake-up through the socket, reached a sleeping reader
    /// sooner than the same message through the socket. Returns the options unchanged if there is no shared memory.
    ///
    /// Takes some tens of milliseconds, and runs both sides in threads of this process.
    ///
    /// # Errors
    /// A handle or a thread cannot be created.
    ///
    /// ```no_run
    /// use pipewright_ipc::Options;
    /// let options = Options::default().tune()?;
    /// assert!((512..=128 << 10).contains(&options.threshold_bytes));
    /// # Ok::<(), pipewright_ipc::Error>(())
    /// ```
    pub fn tune(&self) -> Result<Options, Error> {
        let mut probes =
            [ProbeConnection::open(self, usize::MAX)?, ProbeConnection::open(self, 0)?];
        if probes.iter().any(|probe| !probe.host.stats().shared_memory) {
            return Ok(self.clone());
        }
        // From the longest down: from the threshold on, shared memory is never slower.
        let mut threshold_bytes = LENGTHS.last().copied().unwrap_or(0) * 2;
        for length in LENGTHS.into_iter().rev() {
            let body = vec![7; length];
            let mut times = [Vec::new(), Vec::new()];
            for _ in 0..ROUNDS {
                // Interleaved, so that other load affects both.
                for (probe, times) in probes.iter_mut().zip(&mut times) {
                    times.push(probe.round_trip(&body)?);
                }
            }
            let [socket, shared] = times.map(median);
            if shared > socket {
                break;
            }
            threshold_bytes = length;
        }
        for probe in probes {
            probe.close()?;
        }
        Ok(Options { threshold_bytes, ..self.clone() })
    }
}

/// A connection through the socket or through shared memory, whose reader sleeps before each message.
struct ProbeConnection {
    host: Channel,
    worker: thread::JoinHandle<Result<(), Error>>,
}

impl ProbeConnection {
    fn open(options: &Options, threshold_bytes: usize) -> Result<ProbeConnection, Error> {
        let options = Options {
            threshold_bytes,
            shared_memory: SharedMemory::Auto,
            spin: Duration::ZERO,
            ..options.clone()
        };
        let (end, handle) = handle_channel::pair()?;
        let theirs = options.clone();
        let answer = move || {
            let mut channel: Channel = Channel::as_worker(handle, &theirs)?;
            let mut body = Vec::new();
            loop {
                match channel.recv().and_then(|message| message.read_into(&mut body)) {
                    Ok(()) => channel.send_bytes(&[0; 16])?,
                    Err(error) if *error.kind() == ErrorKind::Closed => {
                        return channel.close().map(drop);
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        let worker = thread::Builder::new().name("pw-tune".to_owned()).spawn(answer)?;
        Ok(ProbeConnection { host: Channel::connected_as_host(end, &options)?, worker })
    }

    fn round_trip(&mut self, body: &[u8]) -> Result<Duration, Error> {
        let start = Instant::now();
        self.host.send_bytes(body)?;
        let _answer = self.host.recv()?;
        Ok(start.elapsed())
    }

    fn close(self) -> Result<(), Error> {
        self.host.close()?;
        // A thread that panicked has closed its end: `close` above reports that.
        self.worker.join().unwrap_or(Ok(()))
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
