//! The acts of a puppet as a worker: `ipc=MODE,key=value,...`.

#[expect(dead_code, reason = "the host's side of the example")]
#[path = "../../../pipewright-ipc/examples/build.rs"]
mod build;
#[expect(dead_code, reason = "the host's side of the example")]
#[path = "../../../pipewright-ipc/examples/service.rs"]
mod example;
#[expect(dead_code, reason = "the host's side of the example")]
#[path = "../../../pipewright-ipc/examples/pool.rs"]
mod pool;

use std::fs::OpenOptions;
use std::io::{self, IoSlice, Write as _};
use std::pin::pin;
use std::task::{self, Waker};
use std::thread;
use std::time::{Duration, Instant};

use pipewright::Command;
use pipewright_ipc::service::{Bytes, Context, Duplex, Input, Output};
use pipewright_ipc::{Channel, Error, Options, Pool, PoolOptions, Request, SharedMemory, worker};
use pipewright_os::channel::handle_channel::{self, Arrived, ChannelEnd};
use pipewright_tests::service::{DivisionError, Probe};
use pipewright_tests::{bodies, pace};

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
        "calculator" => calculate(&options)?,
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
            b"hang-with-file" => {
                std::fs::write(&*text, "")?;
                park();
            }
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
            b"child" => return Ok(child_is_worker(&text)?.into_bytes()),
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
            _ => return act_on_items(name, call),
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

/// Prints if this process is a worker; with an argument, a child of that kind prints it.
pub(crate) fn is_worker(whose: &str) -> io::Result<()> {
    let answer = match whose {
        "" => format!("{}\n", worker::is_worker()),
        kind => child_is_worker(kind)?,
    };
    io::stdout().write_all(answer.as_bytes())
}

/// Returns the output of a child that was started in that way.
fn child_is_worker(kind: &str) -> io::Result<String> {
    let puppet = std::env::current_exe()?;
    match kind {
        "pipewright" => Ok(Command::new(puppet).arg("is-worker").read()? + "\n"),
        "std" => {
            let output = std::process::Command::new(puppet).arg("is-worker").output()?;
            String::from_utf8(output.stdout).map_err(io::Error::other)
        }
        other => Err(io::Error::other(format!("unknown kind of child: {other}"))),
    }
}

/// The depth at which no process starts another one, so that a failing run ends too.
const DEEPEST: u32 = 3;

/// Appends its depth to the file, and starts workers of its own.
pub(crate) fn forgets(value: &str) -> io::Result<()> {
    let mut parts = value.splitn(3, ',');
    let mut part = || parts.next().unwrap_or_default();
    let (kind, depth, file) = (part(), part(), part());
    let depth: u32 = depth.parse().map_err(io::Error::other)?;
    let mut list = OpenOptions::new().append(true).create(true).open(file)?;
    list.write_all(format!("{depth}\n").as_bytes())?;
    if depth >= DEEPEST {
        return Ok(());
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(format!("forgets={kind},{},{file}", depth + 1));
    let options = Options { shared_memory: SharedMemory::Off, ..Options::default() };
    match kind {
        "pool" => start_pool(command, options)?,
        "channel" => drop(Channel::<(), ()>::start(&mut command, &options)?),
        "channel-async" => {
            let start = pin!(Channel::<(), ()>::start_async(&mut command, &options));
            // Polled once: the call has to fail before it waits.
            let _ = start.poll(&mut task::Context::from_waker(Waker::noop())).map_ok(drop)?;
        }
        other => return Err(io::Error::other(format!("unknown kind of host: {other}"))),
    }
    Ok(())
}

fn start_pool(command: Command, channel: Options) -> Result<(), Error> {
    let options = PoolOptions { max_workers: 1, start_attempts: 2, channel, ..Default::default() };
    let pool = Pool::new(command, options)?;
    pool.call(Request::new("x").timeout(pace::seconds(20))).map(drop)
}

/// Performs an act on the items of a call.
fn act_on_items(name: &[u8], call: &mut worker::Call<'_>) -> worker::Answer {
    match name {
        b"count-items" => count(call),
        b"take-items" => {
            while call.next_item()?.is_some() {}
            Ok(b"done".to_vec())
        }
        b"sum" => {
            let mut sum = 0;
            while let Some(item) = call.next_item()? {
                sum += item.len();
            }
            Ok(sum.to_string().into_bytes())
        }
        b"first-item" => call.next_item()?.ok_or_else(|| "no item".into()),
        b"echo-items" => {
            while let Some(item) = call.next_item()? {
                call.send_item(&item)?;
            }
            Ok(b"done".to_vec())
        }
        b"after-cancel" => after_cancel(call),
        b"exit-at-item" => {
            call.next_item()?;
            std::process::exit(5);
        }
        _ => Err("unknown request".into()),
    }
}

/// Waits for the cancellation, and only then for items or for credit.
fn after_cancel(call: &mut worker::Call<'_>) -> worker::Answer {
    while !call.is_cancelled() {
        std::thread::park_timeout(std::time::Duration::from_millis(2));
    }
    while call.request().ends_with(b"send") {
        call.send_item(b"x")?;
    }
    while call.next_item()?.is_some() {}
    Ok(Vec::new())
}

/// Checks that each item is the body of its number, and returns their number.
fn count(call: &mut worker::Call<'_>) -> worker::Answer {
    let (mut number, mut expected) = (0, Vec::new());
    while let Some(item) = call.next_item()? {
        bodies::check(number, bodies::length(number), &item, &mut expected);
        number += 1;
    }
    // The end is an end for good.
    if call.next_item()?.is_some() {
        return Err("an item after the end".into());
    }
    Ok(number.to_string().into_bytes())
}

/// Serves the example.
fn calculate(options: &Options) -> Result<(), pipewright_ipc::Error> {
    example::Calculator::serve(example::Worker, options)
}

/// The worker, and the sum so far.
#[derive(Default)]
pub(crate) struct ProbeWorker(u64);

impl Probe for ProbeWorker {
    fn pid(&self) -> u32 {
        std::process::id()
    }

    fn divide(&self, dividend: i64, divisor: i64) -> Result<i64, DivisionError> {
        match divisor {
            0 => Err(DivisionError::ByZero { dividend }),
            _ => dividend.checked_div(divisor).ok_or(DivisionError::Overflow),
        }
    }

    fn add(&mut self, numbers: Vec<u64>) -> u64 {
        self.0 += numbers.iter().sum::<u64>();
        self.0
    }

    fn nothing(&self, (): (), _: String, _: u8, _: u8, _: u8) {}

    fn panic(&self, message: String) {
        panic!("{message}")
    }

    fn exit(&self, code: i32) {
        std::process::exit(code)
    }

    fn echo(&self, bytes: Vec<u8>) -> Vec<u8> {
        bytes
    }

    fn cut(&self, mut prefix: Vec<u8>, bytes: Bytes, from: u32) -> Result<Bytes, String> {
        match bytes.get(from as usize..) {
            Some(rest) => {
                prefix.extend_from_slice(rest);
                Ok(Bytes(prefix))
            }
            None => Err(format!("{from} of {}", bytes.len())),
        }
    }

    fn split(&self, bytes: Vec<u8>, size: u32, pieces: &mut Output<'_, Bytes>) -> Vec<u8> {
        for piece in bytes.chunks(size as usize) {
            if pieces.send(&Bytes(piece.to_vec())).is_err() {
                break;
            }
        }
        bytes
    }

    fn wait(&self, file: String, context: &mut Context<'_>) -> bool {
        let is_written = std::fs::write(file, "").is_ok();
        while !context.is_cancelled() {
            thread::park_timeout(Duration::from_millis(2));
        }
        is_written
    }

    fn count_up(&self, to: u32, numbers: &mut Output<'_, u32>) -> String {
        for number in 0..to {
            if let Err(error) = numbers.send(&number) {
                return error.to_string();
            }
        }
        "done".to_owned()
    }

    fn sum(&self, start: u64, numbers: &mut Input<'_, u64>) -> Option<u64> {
        let mut sum = start;
        while let Some(number) = numbers.next().ok()? {
            sum += number;
        }
        Some(sum)
    }

    fn number(&self, texts: &mut Duplex<'_, String, (u32, String)>, prefix: String) -> u32 {
        let mut count = 0;
        while let Ok(Some(text)) = texts.next() {
            if texts.send(&(count, prefix.clone() + &text)).is_err() {
                break;
            }
            count += 1;
        }
        count
    }

    fn reset(&mut self) -> bool {
        self.0 = 0;
        true
    }
}
