//! What a puppet can do as a worker: `ipc=MODE,key=value,...`.

use std::io;
use std::thread;
use std::time::Duration;

use pipewright_ipc::{Channel, Options, SharedMemory, worker};
use pipewright_tests::bodies;

/// Is a worker of that kind until the host is gone.
pub(crate) fn perform(value: &str) -> io::Result<()> {
    let (mode, rest) = value.split_once(',').unwrap_or((value, ""));
    let pairs = rest.split(',').filter_map(|pair| pair.split_once('='));
    let mut options = Options::default();
    let (mut count, mut length) = (0, 0);
    for (key, value) in pairs {
        let number = || value.parse::<u64>().map_err(io::Error::other);
        match key {
            "app" => options.app = value.to_owned(),
            "build" => options.build = value.to_owned(),
            "salt" => options.salt = value.to_owned(),
            "shm" => options.shared_memory = shared_memory(value)?,
            "ring" => options.ring_bytes = number()? as usize,
            "most" => options.max_message_bytes = number()?,
            "spin" => options.spin = Duration::from_micros(number()?),
            "count" => count = number()?,
            "length" => length = number()? as usize,
            other => return Err(io::Error::other(format!("no option is called {other}"))),
        }
    }
    match mode {
        "echo" => worker::serve(&options, |question, answer| answer.extend_from_slice(question))?,
        "noisy" => worker::serve(&options, |question, answer| {
            println!("a line on stdout of the worker");
            eprintln!("a line on stderr of the worker");
            answer.extend_from_slice(question);
        })?,
        "both" => both(&options, count)?,
        "source" => source(&options)?,
        "deaf" => deaf(&options, count, length)?,
        "silent" => {
            let _channel: Channel = worker::channel(&options)?;
            park();
        }
        "mute" => park(),
        "slow" => worker::serve(&options, |question, answer| {
            thread::park_timeout(Duration::from_millis(
                question.first().map_or(0, |it| *it as u64),
            ));
            answer.extend_from_slice(question);
        })?,
        "die" => {
            let mut channel: Channel = worker::channel(&options)?;
            channel.send_bytes(b"last words")?;
            std::process::exit(7);
        }
        "typed" => typed(&options)?,
        "handles" => handles(&options)?,
        other => return Err(io::Error::other(format!("no worker is called {other}"))),
    }
    Ok(())
}

fn shared_memory(value: &str) -> io::Result<SharedMemory> {
    match value {
        "on" => Ok(SharedMemory::Required),
        "auto" => Ok(SharedMemory::Auto),
        "off" => Ok(SharedMemory::Off),
        other => Err(io::Error::other(other.to_owned())),
    }
}

fn park() -> ! {
    loop {
        thread::park();
    }
}

/// Sends so many messages, and only then receives as many; then says whether they were right.
fn both(options: &Options, count: u64) -> Result<(), pipewright_ipc::Error> {
    let mut channel: Channel = worker::channel(options)?;
    let (mut body, mut came) = (Vec::new(), Vec::new());
    for number in 0..count {
        bodies::body(number, bodies::length(number), &mut body);
        channel.send_bytes(&body)?;
    }
    for number in 0..count {
        channel.recv()?.read_into(&mut came)?;
        bodies::check(number, bodies::length(number), &came, &mut body);
    }
    channel.send_bytes(b"right")?;
    channel.close().map(drop)
}

/// Sends messages for as long as somebody takes them.
fn source(options: &Options) -> Result<(), pipewright_ipc::Error> {
    let mut channel: Channel = worker::channel(options)?;
    let mut body = Vec::new();
    for number in 0.. {
        bodies::body(number, bodies::length(number), &mut body);
        match channel.send_bytes(&body) {
            Ok(()) => {}
            Err(error) if error.is_disconnect() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sends so many messages of that length, and never reads.
fn deaf(options: &Options, count: u64, length: usize) -> Result<(), pipewright_ipc::Error> {
    let mut channel: Channel = worker::channel(options)?;
    let mut body = Vec::new();
    for number in 0..count {
        bodies::body(number, length, &mut body);
        channel.send_bytes(&body)?;
    }
    park();
}

/// Adds up numbers, as values.
fn typed(options: &Options) -> Result<(), pipewright_ipc::Error> {
    let mut channel = worker::channel::<(u64, String), Vec<u64>>(options)?;
    loop {
        let numbers = match channel.recv() {
            Ok(message) => message.value()?,
            Err(error) if error.is_disconnect() => return channel.close().map(drop),
            Err(error) => return Err(error),
        };
        channel.send(&(numbers.iter().sum(), format!("{} numbers", numbers.len())))?;
    }
}

/// Writes a line into every handle that it is sent, and says how many there were.
fn handles(options: &Options) -> Result<(), pipewright_ipc::Error> {
    let mut channel: Channel = worker::channel(options)?;
    loop {
        let count = match channel.recv() {
            Ok(mut message) => {
                let handles = message.take_handles();
                let line = message.bytes()?;
                for handle in &handles {
                    let mut file = std::fs::File::from(handle.try_clone()?);
                    io::Write::write_all(&mut file, &line)?;
                }
                handles.len()
            }
            Err(error) if error.is_disconnect() => return channel.close().map(drop),
            Err(error) => return Err(error),
        };
        channel.send_bytes(&[count as u8])?;
    }
}
