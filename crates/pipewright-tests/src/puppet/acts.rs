//! The acts of a puppet.

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio, exit};
use std::thread;
use std::time::{Duration, Instant};

use pipewright::{CancelToken, Signal};
use pipewright_tests::pace;

#[cfg(target_os = "linux")]
use crate::peer;
use crate::{system, worker};

/// Performs one act.
pub(crate) fn perform(name: &str, value: &str) -> io::Result<()> {
    match name {
        // Output.
        "out" => write_and_flush(io::stdout(), value.as_bytes()),
        "err" => write_and_flush(io::stderr(), value.as_bytes()),
        "out-hex" => write_and_flush(io::stdout(), &bytes_of_hex(value)?),
        "out-xs" => write_and_flush(io::stdout(), "x".repeat(number(value)?).as_bytes()),
        "out-bytes" => flood(&mut io::stdout(), number(value)?),
        "err-bytes" => flood(&mut io::stderr(), number(value)?),
        "alternate" => alternate(number(value)?),
        "lines" => lines(number(value)?),
        "out-pid" => write_and_flush(io::stdout(), format!("{}\n", std::process::id()).as_bytes()),
        // Input.
        "cat" => cat(&mut [&mut io::stdout()]),
        "cat-both" => cat(&mut [&mut io::stdout(), &mut io::stderr()]),
        "eat" => eat(number(value)?),
        "eat-all" => io::copy(&mut io::stdin(), &mut io::sink()).map(drop),
        "sort" => sort(),
        "count" => count(),
        // Time and exit.
        "wait" => wait(value),
        "exit" => exit(number(value)? as i32),
        // Other processes and files.
        "allocate" => allocate(number(value)?),
        "burn" => burn(number(value)?),
        "spawn" => spawn(value).map(drop),
        "leave" => leave(value),
        "spawn-and-reap" => spawn_and_reap(value),
        "daemon" => spawn(&format!("session;wait={value}")).map(drop),
        "host" => host(value, false),
        "host-limited" => host(value, true),
        "host-slot" => host_slot(value),
        "host-asleep" => host_asleep(value, None),
        "host-asleep-limited" => host_asleep(value, Some(high_limits())),
        "slots" => slots(value),
        "interact" => interact(value, false),
        "interact-async" => interact(value, true),
        "detach" => detach(value),
        "wait-for-file" => wait_for_file(value),
        "guard" => guard(value),
        "touch" => fs::write(value, b""),
        // In that folder, with its pid as the name.
        "touch-pid" => fs::write(Path::new(value).join(std::process::id().to_string()), b""),
        // Its own state.
        "args" => std::env::args()
            .try_for_each(|arg| write_and_flush(io::stdout(), format!("{arg}\n").as_bytes())),
        "env" => write_and_flush(io::stdout(), std::env::var(value).unwrap_or_default().as_bytes()),
        "expect-env" => expect_env(value),
        "env-all" => std::env::vars().try_for_each(|(key, value)| {
            write_and_flush(io::stdout(), format!("{key}={value}\n").as_bytes())
        }),
        "cwd" => {
            write_and_flush(io::stdout(), std::env::current_dir()?.to_string_lossy().as_bytes())
        }
        "handles" => handles(),
        // Workers.
        "ipc" => worker::perform(value),
        #[cfg(target_os = "linux")]
        "peer" => peer::perform(value),
        "is-worker" => worker::is_worker(value),
        "forgets" => worker::forgets(value),
        other => system::perform(other, value),
    }
}

/// Hands the terminal to a shell script, until it ends or Ctrl-] is typed.
fn interact(script: &str, in_task: bool) -> io::Result<()> {
    let mut command = pipewright::Command::new("sh");
    let mut session = pipewright::Session::spawn(command.args(["-c", script]))?;
    let end = if in_task {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(session.interact_async(Some(0x1d)))?
    } else {
        session.interact(Some(0x1d))?
    };
    println!("interact: {end:?}");
    Ok(())
}

fn number(text: &str) -> io::Result<usize> {
    text.parse().map_err(|_| io::Error::other(format!("{text} is not a number")))
}

fn write_and_flush(mut to: impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}

fn bytes_of_hex(text: &str) -> io::Result<Vec<u8>> {
    let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
    Ok(digits.chunks_exact(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect())
}

/// Returns the byte at that offset of every flood.
fn flood_byte(at: usize) -> u8 {
    (at % 251) as u8
}

fn flood(to: &mut impl Write, count: usize) -> io::Result<()> {
    let period: Vec<u8> = (0..251 * 256).map(flood_byte).collect();
    let mut left = count;
    while left > 0 {
        let now = left.min(period.len());
        to.write_all(&period[..now])?;
        left -= now;
    }
    to.flush()
}

/// Writes to both streams alternately, in growing pieces: 1, 2, 4 ... bytes.
fn alternate(count: usize) -> io::Result<()> {
    let mut done = 0;
    let mut piece = 1;
    while done < count {
        let now = piece.min(count - done);
        flood(&mut io::stdout(), now)?;
        flood(&mut io::stderr(), now)?;
        done += now;
        piece = if piece > 200_000 { 1 } else { piece * 2 };
    }
    Ok(())
}

/// Uses that many MiB of memory, and keeps them to the end.
fn allocate(mib: usize) -> io::Result<()> {
    const PAGE_BYTES: usize = 4096;
    let mut memory = Vec::new();
    for _ in 0..mib {
        let mut chunk = vec![0_u8; 1 << 20];
        // Written page by page: memory that was only reserved does not count.
        chunk.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = 1);
        memory.push(std::hint::black_box(chunk));
    }
    std::mem::forget(memory);
    write_and_flush(io::stdout(), b"allocated\n")
}

/// Uses that many milliseconds of CPU time.
fn burn(millis: usize) -> io::Result<()> {
    let spent = || pipewright_os::process::usage::of_this_process().map(|spent| spent.cpu);
    let start = spent()?;
    while spent()?.saturating_sub(start) < Duration::from_millis(millis as u64) {
        std::hint::black_box((0..10_000_u64).sum::<u64>());
    }
    Ok(())
}

fn lines(count: usize) -> io::Result<()> {
    for line in 0..count {
        write_and_flush(io::stdout(), format!("line {line}\n").as_bytes())?;
    }
    Ok(())
}

/// Copies stdin to all targets, each piece as it arrives.
fn cat(to: &mut [&mut dyn Write]) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = io::stdin().read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        to.iter_mut().try_for_each(|to| write_and_flush(to, &buffer[..count]))?;
    }
}

fn eat(count: usize) -> io::Result<()> {
    let mut buffer = vec![0; count];
    // Unbuffered: std's stdin would read more than requested.
    system::unbuffered_stdin()?.read_exact(&mut buffer)
}

/// Prints the lines of stdin, sorted.
fn sort() -> io::Result<()> {
    let input = io::read_to_string(io::stdin())?;
    let mut lines: Vec<_> = input.lines().collect();
    lines.sort_unstable();
    lines
        .into_iter()
        .try_for_each(|line| write_and_flush(io::stdout(), format!("{line}\n").as_bytes()))
}

/// Prints the number of bytes of stdin.
fn count() -> io::Result<()> {
    let bytes = io::copy(&mut io::stdin(), &mut io::sink())?;
    write_and_flush(io::stdout(), format!("{bytes}\n").as_bytes())
}

/// Waits that many seconds, at this machine's pace.
fn wait(seconds: &str) -> io::Result<()> {
    let seconds: f64 = seconds.parse().map_err(io::Error::other)?;
    let end = Instant::now() + pace::scaled(Duration::from_secs_f64(seconds));
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    {
        thread::park_timeout(left);
    }
    Ok(())
}

fn wait_for_file(path: &str) -> io::Result<()> {
    while !fs::exists(path)? {
        thread::park_timeout(Duration::from_millis(1));
    }
    Ok(())
}

/// Starts a grandchild with the same stdio and these acts; its pid goes to stderr first.
fn spawn(acts: &str) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(acts.split(';'));
    command.stdin(Stdio::null());
    let child = command.spawn()?;
    write_and_flush(io::stderr(), format!("{}\n", child.id()).as_bytes())?;
    Ok(child)
}

/// Does the same as `spawn`, without passing on any of our streams.
fn leave(acts: &str) -> io::Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(acts.split(';')).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn()?;
    write_and_flush(io::stderr(), format!("{}\n", child.id()).as_bytes())
}

/// Does the same as `spawn`, and reaps the grandchild only when stdin ends.
fn spawn_and_reap(acts: &str) -> io::Result<()> {
    let mut child = spawn(acts)?;
    io::copy(&mut io::stdin(), &mut io::sink())?;
    child.wait().map(drop)
}

/// Starts a child whose tree ends with this process, and may have limits; its pid goes to stderr first.
fn host(acts: &str, is_limited: bool) -> io::Result<()> {
    let mut command = pipewright::Command::new(std::env::current_exe()?);
    command.args(acts.split(';')).kill_on_parent_exit(pipewright::Scope::Tree);
    if is_limited {
        command.limits(high_limits().best_effort());
    }
    let child = command.spawn()?;
    write_and_flush(io::stderr(), format!("{}\n{}\n", child.id(), child.containment()).as_bytes())?;
    child.wait()?;
    Ok(())
}

/// Starts a child in a slot, with limits if they can be had; its pid goes to stderr first.
fn host_slot(acts: &str) -> io::Result<()> {
    let slot = pipewright::TreeSlot::new()?;
    let start = |limits: Option<pipewright::Limits>| {
        let mut command = pipewright::Command::new(std::env::current_exe().unwrap_or_default());
        if let Some(limits) = limits {
            command.limits(limits);
        }
        command.args(acts.split(';')).contain_in(&slot).spawn()
    };
    let child = start(Some(high_limits())).or_else(|_| start(None))?;
    write_and_flush(io::stderr(), format!("{}\n{}\n", child.id(), child.containment()).as_bytes())?;
    child.wait()?;
    Ok(())
}

/// Returns limits that nothing reaches.
fn high_limits() -> pipewright::Limits {
    pipewright::Limits::new().memory_max(1 << 40).pids_max(1 << 15).cpu_max(64.0)
}

/// Starts a child whose tree ends with this process, and never looks at it again.
fn host_asleep(acts: &str, limits: Option<pipewright::Limits>) -> io::Result<()> {
    let mut command = pipewright::Command::new(std::env::current_exe()?);
    command.args(acts.split(';')).kill_on_parent_exit(pipewright::Scope::Tree);
    if let Some(limits) = limits {
        command.limits(limits.best_effort());
    }
    let _child = command.spawn()?;
    write_and_flush(io::stderr(), b"started\n")?;
    loop {
        std::thread::park();
    }
}

/// Starts a child with these acts in each of three slots, which have run another one before.
fn slots(acts: &str) -> io::Result<()> {
    let mut children = Vec::new();
    for _ in 0..3 {
        let slot = pipewright::TreeSlot::new()?;
        let command = || pipewright::Command::new(std::env::current_exe().unwrap_or_default());
        command().arg("exit=0").contain_in(&slot).run()?;
        children.push(command().args(acts.split(';')).contain_in(&slot).spawn()?);
    }
    for child in children {
        child.wait()?;
    }
    Ok(())
}

/// Starts a detached grandchild with these acts; its pid goes to stderr first.
fn detach(acts: &str) -> io::Result<()> {
    let mut command = pipewright::Command::new(std::env::current_exe()?);
    let pid = command.args(acts.split(';')).detached().start_and_forget()?;
    write_and_flush(io::stderr(), format!("{pid}\n").as_bytes())
}

/// Fails unless a variable has that value: `NAME=VALUE`.
fn expect_env(expected: &str) -> io::Result<()> {
    let (name, value) = expected.split_once('=').unwrap_or((expected, ""));
    match std::env::var(name) {
        Ok(found) if found == value => Ok(()),
        found => Err(io::Error::other(format!("expected {expected}, found {found:?}"))),
    }
}

/// Lets signals cancel a number of tokens, one after the other, and prints each: `INT+TERM,2`. After the last one it
/// waits; with `,raise` it exits by the first signal instead.
fn guard(value: &str) -> io::Result<()> {
    let mut parts = value.split(',');
    let names = parts.next().unwrap_or_default().split('+');
    let signals: Result<Vec<Signal>, _> = names.map(str::parse).collect();
    let count = number(parts.next().unwrap_or("1"))?;
    let tokens: Vec<CancelToken> = (0..count).map(|_| CancelToken::new()).collect();
    let mut tokens = tokens.iter();
    let first = tokens.next().ok_or(io::ErrorKind::InvalidInput)?;
    let mut guard = first.cancel_on(&signals.map_err(io::Error::other)?)?;
    for token in tokens.clone() {
        guard = guard.then(token);
    }
    write_and_flush(io::stdout(), b"guarded\n")?;
    for token in std::iter::once(first).chain(tokens) {
        while !token.wait_for(Duration::from_secs(600)) {}
        write_and_flush(io::stdout(), format!("cancelled {:?}\n", guard.received()).as_bytes())?;
    }
    if let (Some("raise"), Some(signal)) = (parts.next(), guard.received()) {
        drop(guard);
        signal.raise();
    }
    wait("600")
}

/// Prints the number and kind of every handle, a line each.
fn handles() -> io::Result<()> {
    for handle in pipewright_os::base::handle::open_handles()? {
        write_and_flush(io::stdout(), format!("{} {}\n", handle.number, handle.kind).as_bytes())?;
    }
    Ok(())
}
