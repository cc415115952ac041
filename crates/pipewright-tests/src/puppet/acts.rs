//! What a puppet can do.

use std::fs;
use std::io::{self, Read, Write};
use std::process::{Child, Command, Stdio, exit};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

/// Does one thing.
pub(crate) fn perform(name: &str, value: &str) -> io::Result<()> {
    match name {
        // Output.
        "out" => say(io::stdout(), value.as_bytes()),
        "err" => say(io::stderr(), value.as_bytes()),
        "out-hex" => say(io::stdout(), &bytes_of_hex(value)?),
        "out-bytes" => flood(&mut io::stdout(), number(value)?),
        "err-bytes" => flood(&mut io::stderr(), number(value)?),
        "alternate" => alternate(number(value)?),
        "lines" => lines(number(value)?),
        "out-pid" => say(io::stdout(), format!("{}\n", std::process::id()).as_bytes()),
        // Input.
        "cat" => io::copy(&mut io::stdin(), &mut io::stdout()).and_then(|_| io::stdout().flush()),
        "cat-both" => cat_both(),
        "eat" => eat(number(value)?),
        "eat-all" => io::copy(&mut io::stdin(), &mut io::sink()).map(drop),
        // Time and ends.
        "wait" => wait(value),
        "exit" => exit(number(value)? as i32),
        "raise" => raise(value),
        "ignore" => ignore(value),
        // Others.
        "spawn" => spawn(value).map(drop),
        "spawn-and-reap" => spawn_and_reap(value),
        "daemon" => spawn(&format!("session;wait={value}")).map(drop),
        "session" => rustix::process::setsid().map(drop).map_err(io::Error::from),
        "host" => host(value),
        "detach" => detach(value),
        "own-terminal" => own_terminal(),
        "wait-for-file" => wait_for_file(value),
        "touch" => fs::write(value, b""),
        // What it finds itself to be.
        "args" => {
            std::env::args().try_for_each(|arg| say(io::stdout(), format!("{arg}\n").as_bytes()))
        }
        "env" => say(io::stdout(), std::env::var(value).unwrap_or_default().as_bytes()),
        "env-all" => std::env::vars()
            .try_for_each(|(key, value)| say(io::stdout(), format!("{key}={value}\n").as_bytes())),
        "cwd" => say(io::stdout(), std::env::current_dir()?.to_string_lossy().as_bytes()),
        "handles" => handles(),
        "modes" => modes(),
        "set-nonblocking" => set_nonblocking(),
        "status" => status_line(value),
        "limits" => {
            io::copy(&mut fs::File::open("/proc/self/limits")?, &mut io::stdout()).map(drop)
        }
        other => Err(io::Error::other(format!("no act is called {other}"))),
    }
}

fn number(text: &str) -> io::Result<usize> {
    text.parse().map_err(|_| io::Error::other(format!("{text} is no number")))
}

fn say(mut to: impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}

fn bytes_of_hex(text: &str) -> io::Result<Vec<u8>> {
    let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
    Ok(digits.chunks_exact(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect())
}

/// The byte that stands at that place of every flood.
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

/// Writes to both streams in turn, with pieces that grow: 1, 2, 4 ... bytes.
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

fn lines(count: usize) -> io::Result<()> {
    for line in 0..count {
        say(io::stdout(), format!("line {line}\n").as_bytes())?;
    }
    Ok(())
}

fn cat_both() -> io::Result<()> {
    let mut buffer = vec![0; 50_000];
    loop {
        let count = io::stdin().read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        say(io::stdout(), &buffer[..count])?;
        say(io::stderr(), &buffer[..count])?;
    }
}

fn eat(count: usize) -> io::Result<()> {
    let mut buffer = vec![0; count];
    // Unbuffered: std's stdin would take more than it is asked for.
    let stdin = std::os::fd::AsFd::as_fd(&io::stdin()).try_clone_to_owned()?;
    fs::File::from(stdin).read_exact(&mut buffer)
}

fn wait(seconds: &str) -> io::Result<()> {
    let seconds: f64 = seconds.parse().map_err(io::Error::other)?;
    let end = Instant::now() + Duration::from_secs_f64(seconds);
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

fn signal_number(name: &str) -> io::Result<i32> {
    let signal: pipewright_os::signal::Signal = name.parse().map_err(io::Error::other)?;
    Ok(signal.number())
}

fn raise(name: &str) -> io::Result<()> {
    let number = signal_number(name)?;
    // SAFETY: a signal to this process. Rust's own handlers stand aside first.
    unsafe { libc::signal(number, libc::SIG_DFL) };
    // SAFETY: a number.
    match unsafe { libc::raise(number) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn ignore(name: &str) -> io::Result<()> {
    // SAFETY: SIG_IGN is no function of ours.
    match unsafe { libc::signal(signal_number(name)?, libc::SIG_IGN) } {
        libc::SIG_ERR => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// A grandchild with the same stdio, told what to do; its pid goes to our stderr first.
fn spawn(acts: &str) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(acts.split(';'));
    command.stdin(Stdio::null());
    let child = command.spawn()?;
    say(io::stderr(), format!("{}\n", child.id()).as_bytes())?;
    Ok(child)
}

/// As `spawn`; of its end no notice is taken before that of our own stdin.
fn spawn_and_reap(acts: &str) -> io::Result<()> {
    let mut child = spawn(acts)?;
    io::copy(&mut io::stdin(), &mut io::sink())?;
    child.wait().map(drop)
}

/// A child whose tree is to end when this process does; its pid goes to our stderr first.
fn host(acts: &str) -> io::Result<()> {
    let mut command = pipewright::Command::new(std::env::current_exe()?);
    command.args(acts.split(';')).kill_on_parent_exit(pipewright::Scope::Tree);
    let child = command.spawn()?;
    say(io::stderr(), format!("{}\n{}\n", child.id(), child.containment()).as_bytes())?;
    child.wait()?;
    Ok(())
}

/// A detached grandchild, told what to do; its pid goes to our stderr first.
fn detach(acts: &str) -> io::Result<()> {
    let mut command = pipewright::Command::new(std::env::current_exe()?);
    let pid = command.args(acts.split(';')).detached().start_and_forget()?;
    say(io::stderr(), format!("{pid}\n").as_bytes())
}

/// Makes our stdin, a terminal, that of our session.
fn own_terminal() -> io::Result<()> {
    // SAFETY: numbers; 0 takes it from nobody.
    match unsafe { libc::ioctl(0, libc::TIOCSCTTY as libc::c_ulong, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Number, kind and inheritability of every handle, a line each.
fn handles() -> io::Result<()> {
    for handle in pipewright_os::probe::open_handles()? {
        say(io::stdout(), format!("{} {}\n", handle.number, handle.kind).as_bytes())?;
    }
    Ok(())
}

/// Whether each standard handle blocks, a line each.
fn modes() -> io::Result<()> {
    let mut text = String::new();
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    for flags in [
        rustix::fs::fcntl_getfl(&stdin)?,
        rustix::fs::fcntl_getfl(&stdout)?,
        rustix::fs::fcntl_getfl(&stderr)?,
    ] {
        text += if flags.contains(OFlags::NONBLOCK) { "nonblocking\n" } else { "blocking\n" };
    }
    say(io::stdout(), text.as_bytes())
}

fn set_nonblocking() -> io::Result<()> {
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    rustix::fs::fcntl_setfl(&stdin, rustix::fs::fcntl_getfl(&stdin)? | OFlags::NONBLOCK)?;
    rustix::fs::fcntl_setfl(&stdout, rustix::fs::fcntl_getfl(&stdout)? | OFlags::NONBLOCK)?;
    rustix::fs::fcntl_setfl(&stderr, rustix::fs::fcntl_getfl(&stderr)? | OFlags::NONBLOCK)?;
    Ok(())
}

/// A line of `/proc/self/status`.
fn status_line(field: &str) -> io::Result<()> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with(field)).unwrap_or("");
    say(io::stdout(), line.as_bytes())
}
