//! The acts of a puppet as a worker: `ipc=MODE,key=value,...`.

use std::io::{self, IoSlice};
use std::thread;
use std::time::{Duration, Instant};

use pipewright_ipc::{Channel, Options, Pool, PoolOptions, SharedMemory, worker};
use pipewright_os::channel::handle_channel::{self, Arrived, ChannelEnd};
use pipewright_tests::bodies;
use pipewright_tests::service::Probe;

use crate::probe::{self, ProbeWorker};
use crate::{started, streams};

#[expect(dead_code, reason = "the host's side of the example")]
#[path = "../../../pipewright-ipc/examples/build.rs"]
mod build;
#[expect(dead_code, reason = "the host's side of the example")]
#[path = "../../../pipewright-ipc/examples/pool.rs"]
mod pool;

/// Runs as a worker of that kind until the host is gone.
pub(crate) fn perform(value: &str) -> io::Result<()> {
    let (mode, rest) = value.split_once(',').unwrap_or((value, ""));
    match mode {
        "liar" => return send_wrong_answer(rest),
        "ignores-goodbye" => return wait_for_end(rest == "answers"),
        _ => {}
    }
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
            other => return Err(io::Error::other(format!("unknown option: {other}"))),
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
        "deaf" => send_without_reading(&options, count, length)?,
        "silent" => {
            let _channel: Channel = worker::channel(&options)?;
            park();
        }
        "mute" => park(),
        "leaves" => {
            drop(handle_channel::inherited("PIPEWRIGHT_IPC")?);
            park();
        }
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
        "calls" => worker::run(&options, &mut ActWorker::default())?,
        "calculator" => probe::calculate(&options)?,
        "probe" => Probe::serve(ProbeWorker::default(), &options)?,
        "sums" => worker::serve_calls(&options, |call| {
            let numbers: Vec<u64> = call.value()?;
            worker::Call::answer(&(numbers.iter().sum::<u64>(), numbers.len()))
        })?,
        "build" => build::work().map_err(|error| io::Error::other(error.to_string()))?,
        "hash" => pool::work().map_err(|error| io::Error::other(error.to_string()))?,
        "typed" => typed(&options)?,
        "handles" => handles(&options)?,
        "gives" => gives(&options)?,
        other => return Err(io::Error::other(format!("unknown worker: {other}"))),
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

/// Sends a number of messages, then receives as many, and reports that all were right.
fn both(options: &Options, count: u64) -> Result<(), pipewright_ipc::Error> {
    let mut channel: Channel = worker::channel(options)?;
    let (mut body, mut received) = (Vec::new(), Vec::new());
    for number in 0..count {
        bodies::body(number, bodies::length(number), &mut body);
        channel.send_bytes(&body)?;
    }
    for number in 0..count {
        channel.recv()?.read_into(&mut received)?;
        bodies::check(number, bodies::length(number), &received, &mut body);
    }
    channel.send_bytes(b"right")?;
    channel.close().map(drop)
}

/// Sends messages while the host receives them.
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

/// Sends a number of messages of that length, and never reads.
fn send_without_reading(
    options: &Options,
    count: u64,
    length: usize,
) -> Result<(), pipewright_ipc::Error> {
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

/// Writes a line into every received handle, and returns their number.
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

/// Waits for that time, or fails once the call is cancelled.
fn wait(call: &mut worker::Call<'_>, time: Duration) -> Result<(), &'static str> {
    let until = Instant::now() + time;
    while Instant::now() < until {
        if call.is_cancelled() {
            return Err("cancelled");
        }
        thread::park_timeout(Duration::from_millis(2));
    }
    Ok(())
}

/// A worker whose requests name the act to perform.
#[derive(Default)]
struct ActWorker {
    count: u64,
    leaked: Vec<Vec<u8>>,
    ignores_reset: bool,
}

impl worker::Serve for ActWorker {
    fn call(&mut self, call: &mut worker::Call<'_>) -> worker::Answer {
        self.count += 1;
        let request = call.take_request();
        let end = request.iter().position(|byte| *byte == b' ').unwrap_or(request.len());
        let (name, rest) = request.split_at(end);
        let rest = rest.get(1..).unwrap_or_default();
        let text = String::from_utf8_lossy(rest);
        let number = || text.parse::<usize>();
        match name {
            b"echo" => return Ok(rest.to_vec()),
            b"pid" => return Ok(std::process::id().to_string().into_bytes()),
            b"count" => return Ok(self.count.to_string().into_bytes()),
            b"long" => return Ok(vec![b'x'; number()?]),
            b"fail" => return Err(text.into()),
            b"abort" => std::process::abort(),
            b"exit" => {
                eprintln!("a line before\nthe last line of {text}");
                std::process::exit(number()? as i32);
            }
            b"panic" => panic!("{text}"),
            b"hang" => park(),
            b"wait" => wait(call, Duration::from_millis(number()? as u64))?,
            // Creates a file once the call has begun.
            b"wait-with-file" => {
                std::fs::write(&*text, "")?;
                wait(call, Duration::from_secs(600))?;
            }
            b"deaf" => self.ignores_reset = true,
            b"leak" => self.leaked.push(vec![1; number()?]),
            b"print" => {
                for number in 0..number()? {
                    println!("line {number} on stdout");
                    eprintln!("line {number} on stderr");
                }
            }
            b"pollute" => {
                // A valid frame, and bytes that are not one.
                let frame = [0, 0, 0, 0, 18, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
                io::Write::write_all(&mut io::stdout(), &frame.repeat(10_000))?;
                io::Write::write_all(&mut io::stderr(), &[0xff; 100_000])?;
            }
            b"items" => {
                for number in 0..number()? {
                    call.send_item(number.to_string().as_bytes())?;
                }
            }
            b"is-worker" => return Ok(format!("{}\n", worker::is_worker()).into_bytes()),
            b"child" => return Ok(started::child_is_worker(&text)?.into_bytes()),
            b"pool" => return pool_of_its_own(),
            b"hold-pool" => return hold_pool_of_trees(),
            b"ask" => return Ok(call.ask(rest)?),
            b"asks" => {
                let mut sum = 0;
                for number in 0..number()? {
                    sum += String::from_utf8(call.ask(number.to_string().as_bytes())?)?
                        .parse::<u64>()?;
                }
                return Ok(sum.to_string().into_bytes());
            }
            b"body" => {
                let mut body = Vec::new();
                let number = number()? as u64;
                bodies::body(number, bodies::length(number), &mut body);
                return Ok(body);
            }
            _ => return streams::act(name, call),
        }
        Ok(b"done".to_vec())
    }

    fn reset(&mut self) -> bool {
        if self.ignores_reset {
            park();
        }
        *self = ActWorker::default();
        true
    }
}

/// Runs as a host whose worker is the root of a contained tree, until it is killed.
fn hold_pool_of_trees() -> worker::Answer {
    let mut command = pipewright::Command::new(std::env::current_exe()?);
    command.arg("ipc=calls,ring=65536").contain(pipewright::Contain::Tree);
    let pool = Pool::new(command, PoolOptions { max_workers: 1, ..PoolOptions::default() })?;
    eprintln!("pid {}", String::from_utf8_lossy(&pool.call("pid")?));
    park()
}

/// Runs as a host: calls its own worker, and a second one through a channel.
fn pool_of_its_own() -> worker::Answer {
    let mut command = pipewright::Command::new(std::env::current_exe()?);
    command.arg("ipc=calls,ring=65536");
    let channel = Options { ring_bytes: 64 << 10, ..Options::default() };
    let pool = Pool::new(command, PoolOptions { max_workers: 1, channel, ..Default::default() })?;
    let mut answer = pool.call("is-worker")?.into_bytes();
    pool.shut_down();
    let mut command = pipewright::Command::new(std::env::current_exe()?);
    let mut channel: Channel = Channel::start(command.arg("ipc=echo"), &Options::default())?;
    channel.send_bytes(b"echo")?;
    answer.extend(channel.recv()?.bytes()?);
    Ok(answer)
}

/// Acts as a worker without shared memory that answers a request by frames of these kinds and calls,
/// `KIND,CALL,KIND,CALL...`. With `none` it does not support calls.
fn send_wrong_answer(answer: &str) -> io::Result<()> {
    let mut end = connected(if answer == "none" { "can=" } else { "can=calls.v1" })?;
    let _request = frame(&mut end)?;
    let numbers: Vec<u8> = answer.split(',').map(|number| number.parse().unwrap_or(0)).collect();
    for pair in numbers.chunks_exact(2) {
        send(&mut end, pair[0], pair[1], &[])?;
    }
    park();
}

/// Connects without shared memory, as a worker that supports this.
fn connected(can: &str) -> io::Result<ChannelEnd> {
    let mut end = handle_channel::inherited("PIPEWRIGHT_IPC")?;
    let hello = String::from_utf8(frame(&mut end)?).map_err(io::Error::other)?;
    let mut lines: Vec<&str> = hello.lines().filter(|line| !line.starts_with("can=")).collect();
    lines.push(can);
    let body = lines.join("\n") + "\n";
    send(&mut end, 1, 0, body.as_bytes())?;
    let _ready = frame(&mut end)?;
    Ok(end)
}

/// Acts as a worker that echoes calls, and takes only the end of the stream for the end of the connection.
fn wait_for_end(answers: bool) -> io::Result<()> {
    let mut end = connected("can=calls.v1")?;
    loop {
        match end.arrived().first_chunk::<16>().copied() {
            Some([_, _, _, _, 10, ..]) => break,
            Some([0, 0, 0, 0, 17, _, _, _, call, ..]) => {
                end.consume(16);
                send(&mut end, 18, call, &[])?;
            }
            Some(head) => return Err(io::Error::other(format!("unexpected {head:?}"))),
            None if end.wait_and_receive()? == Arrived::End => {
                return Err(io::Error::other("an end without GOODBYE"));
            }
            None => {}
        }
    }
    if answers {
        send(&mut end, 10, 0, &[])?;
    }
    while end.wait_and_receive()? != Arrived::End {}
    println!("the stream has ended");
    Ok(())
}

fn send(end: &mut ChannelEnd, kind: u8, call: u8, body: &[u8]) -> io::Result<()> {
    let mut head = (body.len() as u32).to_le_bytes().to_vec();
    head.extend([kind, 0, 0, 0, call, 0, 0, 0, 0, 0, 0, 0]);
    end.send(&[IoSlice::new(&head), IoSlice::new(body)])
}

/// Returns the body of the next frame.
fn frame(end: &mut ChannelEnd) -> io::Result<Vec<u8>> {
    loop {
        if let Some(head) = end.arrived().first_chunk::<16>() {
            let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
            if let Some(body) = end.arrived().get(16..16 + length) {
                let body = body.to_vec();
                end.consume(16 + length);
                return Ok(body);
            }
        }
        if end.wait_and_receive()? == Arrived::End {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Answers each message with the end of a pipe, through which the message comes back.
fn gives(options: &Options) -> Result<(), pipewright_ipc::Error> {
    let mut channel: Channel = worker::channel(options)?;
    loop {
        let question = match channel.recv() {
            Ok(message) => message.bytes()?,
            Err(error) if error.is_disconnect() => return channel.close().map(drop),
            Err(error) => return Err(error),
        };
        let (reader, mut writer) = pipewright::pipe(Default::default())?;
        channel.send_with_handles(b"read it", &[reader.into()])?;
        io::Write::write_all(&mut writer, &question)?;
    }
}
