//! `worker`: runs the jobs of a batch on this node.

use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use pipewright::{CaughtSignals, PipeReader, PipeWriter, Signal, console_in, console_out};
use pipewright_cluster::{Drain, Hooks, SecretSource, Worker};
use pipewright_os::base::error::Quoted;
use pipewright_os::host::host_info::host_name;
use pipewright_os::process::kill_timer::KillTimer;

use crate::args::WorkerOptions;
use crate::{Failure, exit_code, print_error};

/// Runs the worker, and returns the exit code.
pub(crate) fn run(options: WorkerOptions) -> Result<i32, Failure> {
    if let Some(hash) = &options.sum {
        Worker::check_program(hash).map_err(|error| Failure(format!("worker: {error}")))?;
    }
    if let Some(dir) = &options.directory {
        // It was started in the folder of its program.
        std::env::set_current_dir(dir)
            .map_err(Failure::cannot(&format!("enter {}", Quoted(dir.as_os_str()))))?;
    }
    let hooks = Hooks {
        lost: Box::new(|error| {
            print_error(&format!("worker: {error}"));
            // At once: the holders of the trees see the end of this process, and kill what it has started.
            std::process::exit(exit_code::OWN_FAILURE);
        }),
        accepted: catch_signals()?,
        leased: kill_at_the_end_of_the_lease(),
    };
    let node = options.node.or_else(slurm_node).or_else(host_name);
    let slots = options.slots.or_else(slurm_processors).unwrap_or_else(processors);
    let worker = Worker::new(node.unwrap_or_else(|| "?".to_owned()), slots);
    let served = if options.stdio {
        let stdin = console_in().map_err(Failure::cannot("use stdin"))?;
        let stdout = console_out().map_err(Failure::cannot("use stdout"))?;
        worker.over(PipeReader::from(stdin), PipeWriter::from(stdout), hooks)
    } else {
        let secret = options.secret_file.map_or(SecretSource::Environment, SecretSource::File);
        worker.connect(&options.connect, &secret, hooks)
    };
    served.map(|()| exit_code::SUCCESS).map_err(|error| Failure(format!("worker: {error}")))
}

/// The time after the lease at which the kernel kills this process. Its own end, with a message, comes first if it can.
const MESSAGE_TIME: Duration = Duration::from_millis(50);

/// Returns a function that sets the time which this process has left. A worker that is stopped or hangs cannot kill its
/// jobs, and they would run beside their copies on another node.
fn kill_at_the_end_of_the_lease() -> Box<dyn Fn(Duration) + Send> {
    match KillTimer::new() {
        Ok(timer) => Box::new(move |left| {
            // Ignored: a few seconds are in every range.
            let _ = timer.set(left + MESSAGE_TIME);
        }),
        // The thread that watches the lease has to do.
        Err(_) => Box::new(|_| {}),
    }
}

/// Catches signals, before other threads start. Once the batch has accepted the worker, they ask it to start nothing
/// more here: an engine that ends an allocation sends SIGTERM, and SIGKILL some time later.
fn catch_signals() -> Result<Box<dyn FnOnce(Drain)>, Failure> {
    static DRAIN: OnceLock<Drain> = OnceLock::new();
    let caught = CaughtSignals::new(&[Signal::INT, Signal::TERM, Signal::HUP])
        .map_err(Failure::cannot("catch signals"))?;
    let handle = move || {
        while let Ok(arrived) = caught.wait_for_arrival() {
            match DRAIN.get() {
                Some(drain) => drain.drain(&format!("{} was sent to its worker", arrived.signal)),
                None => std::process::exit(exit_code::of_signal(arrived.signal.number())),
            }
        }
    };
    thread::Builder::new()
        .name("signals".to_owned())
        .stack_size(64 << 10)
        .spawn(handle)
        .map_err(Failure::cannot("start a thread"))?;
    Ok(Box::new(|drain| {
        // Ignored: a process has one worker.
        let _ = DRAIN.set(drain);
    }))
}

fn processors() -> u32 {
    let processors = thread::available_parallelism().map_or(1, |count| count.get());
    u32::try_from(processors).unwrap_or(u32::MAX)
}

/// Returns the name that Slurm has for this node.
fn slurm_node() -> Option<String> {
    std::env::var("SLURMD_NODENAME").ok()
}

/// Returns the number of processors that Slurm has allocated here.
fn slurm_processors() -> Option<u32> {
    std::env::var("SLURM_CPUS_ON_NODE").ok()?.parse().ok()
}
