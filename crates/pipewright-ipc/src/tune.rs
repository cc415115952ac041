//! Finds out on this machine from which length on a message is better left in shared memory.

use std::thread;
use std::time::{Duration, Instant};

use pipewright_os::channel::handle_channel;

use crate::channel::Channel;
use crate::error::{Error, ErrorKind};
use crate::options::{Options, SharedMemory};

/// The lengths that are tried, in bytes.
const LENGTHS: [usize; 8] = [512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];

/// Questions of each length, each way; the median of them counts.
const ROUNDS: usize = 101;

impl Options {
    /// The same options with the [threshold](Self::threshold_bytes) that is best on this machine, as it is now: from
    /// there on a message in shared memory, with a word through the socket, reached a sleeping reader sooner than
    /// the same message through the socket. Takes some hundredths of a second, and two threads of this process
    /// for the two sides.
    ///
    /// # Errors
    /// No room for handles or a thread. Where there is no shared memory there is nothing to find out, and the options
    /// are as they were.
    ///
    /// ```no_run
    /// use pipewright_ipc::Options;
    /// let options = Options::default().tune()?;
    /// assert!((512..=128 << 10).contains(&options.threshold_bytes));
    /// # Ok::<(), pipewright_ipc::Error>(())
    /// ```
    pub fn tune(&self) -> Result<Options, Error> {
        let mut ways = [Way::open(self, usize::MAX)?, Way::open(self, 0)?];
        if ways.iter().any(|way| !way.host.stats().shared_memory) {
            return Ok(self.clone());
        }
        // From above: the lengths from which on shared memory is never the worse way.
        let mut threshold_bytes = LENGTHS.last().copied().unwrap_or(0) * 2;
        for length in LENGTHS.into_iter().rev() {
            let body = vec![7; length];
            let mut times = [Vec::new(), Vec::new()];
            for _ in 0..ROUNDS {
                // In turn, so that whatever else the machine does befalls both.
                for (way, times) in ways.iter_mut().zip(&mut times) {
                    times.push(way.round_trip(&body)?);
                }
            }
            let [socket, shared] = times.map(median);
            if shared > socket {
                break;
            }
            threshold_bytes = length;
        }
        for way in ways {
            way.close()?;
        }
        Ok(Options { threshold_bytes, ..self.clone() })
    }
}

/// A connection whose reader sleeps before each message.
struct Way {
    host: Channel,
    worker: thread::JoinHandle<Result<(), Error>>,
}

impl Way {
    fn open(options: &Options, threshold_bytes: usize) -> Result<Way, Error> {
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
        Ok(Way { host: Channel::connected_as_host(end, &options)?, worker })
    }

    fn round_trip(&mut self, body: &[u8]) -> Result<Duration, Error> {
        let start = Instant::now();
        self.host.send_bytes(body)?;
        let _answer = self.host.recv()?;
        Ok(start.elapsed())
    }

    fn close(self) -> Result<(), Error> {
        self.host.close()?;
        // One that has panicked has closed its end, which is told above.
        self.worker.join().unwrap_or(Ok(()))
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
