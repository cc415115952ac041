//! The settings of the batch that the options describe, and the machines that run its jobs.

use std::ffi::OsStr;
use std::io::Cursor;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::ValueEnum as _;
use pipewright_batch::{
    Batch, Containing, InputError, JobAttributes, JobserverMode, LogView, OutputMode,
    OutputOptions, ProgressKind, Source, Template, jobs_of_make, shell_quoted,
};
use pipewright_cluster::{Nodes, Slurm};
use pipewright_os::base::os_text::from_encoded_bytes;
use pipewright_os::host::network;

use super::input;
use crate::Failure;
use crate::args::{BatchOptions, BatchProgressKind, EngineKind, JobserverKind, ShowOutput, Span};
use crate::run::command::{find_user, variables};

pub(super) fn batch(options: &BatchOptions) -> Result<Batch, Failure> {
    let retry = &options.retry;
    let mut batch = Batch::new()
        .retries(retry.retries)
        .retry_on(retry.on().iter().copied())
        .retry_delay(retry.retry_delay.duration, retry.max_delay())
        .once(options.once)
        .stop_with(options.stop_signal, options.kill_after.duration)
        .contain(options.contain.to_containing());
    batch = options.starts.apply_to(batch.output(output(options)?).describe(description(options)));
    if !options.quiet {
        let kind = options.progress.map(BatchProgressKind::to_kind);
        batch = batch.progress(kind.unwrap_or_else(ProgressKind::for_stderr));
    }
    if options.input.pipe {
        // Each job that is read holds a block.
        batch = batch.read_ahead(1);
    }
    batch = batch.private_reports(options.private).print_commands(options.print_commands);
    if let Some(path) = &options.events {
        batch = batch.events_to(path);
    }
    if let Some(path) = &options.trace {
        batch = batch.trace_to(path);
    }
    if let Some(path) = &options.joblog {
        batch = match appended(path)? {
            Some(_) if options.private => {
                return Err(Failure("--private does not fit --joblog +FILE".to_owned()));
            }
            Some(path) => batch.append_joblog_to(path),
            None => batch.joblog_to(path),
        };
    }
    if let Some(path) = &options.junit {
        batch = batch.junit_to(path);
    }
    if let Some(path) = &options.html {
        batch = batch.page_to(path);
    }
    if let Some(path) = &options.learn {
        let log = LogView::open(path).map_err(|error| Failure(error.to_string()))?;
        batch = batch.learn(&log).map_err(|error| Failure(error.to_string()))?;
    }
    if let Some(log) = &options.log {
        batch = batch
            .log(log)
            .resume(options.resume)
            .retry_failed(options.retry_failed)
            .rerun_unknown(options.rerun_unknown)
            .trust_log(options.trust_log);
        if let Some(note) = input::note_for_log(options) {
            batch = batch.note_input(note);
        }
    } else if options.resume {
        batch = batch
            .retry_failed(options.retry_failed)
            .rerun_unknown(options.rerun_unknown)
            .trust_log(options.trust_log);
    }
    let jobserver = options.jobserver.map(JobserverKind::to_mode);
    if let Some(count) = options.jobs {
        batch = batch.jobs(count.resolve());
    } else if let Some(count) = jobs_of_make().filter(|_| jobserver != Some(JobserverMode::Off)) {
        // Below `make -j1` there is no jobserver, and below `make -j64` it is the bound.
        batch = batch.jobs(count);
    }
    batch = batch.max_lost(options.max_lost);
    match nodes(options)? {
        Some(nodes) => batch = batch.nodes(nodes),
        None if !options.send.is_empty() || !options.fetch.is_empty() => {
            let message =
                "--send and --fetch copy files to nodes and back: they need --via or --on";
            return Err(Failure(message.to_owned()));
        }
        None => {}
    }
    for file in &options.send {
        batch = batch.send_file(file_name("--send", file, options)?);
    }
    for file in &options.fetch {
        batch = batch.fetch_file(file_name("--fetch", file, options)?);
    }
    // As make and ninja do: an explicit number is obeyed whatever runs above.
    let usual = if options.jobs.is_none() { JobserverMode::Join } else { JobserverMode::Off };
    batch = batch.jobserver(jobserver.unwrap_or(usual));
    for resource in &options.resource {
        batch = batch.resource(&resource.name, resource.count);
    }
    for (name, value) in variables(&options.environment)? {
        batch = batch.env(name, value);
    }
    if let Some(dir) = &options.environment.cwd {
        batch = batch.current_dir(dir);
    }
    batch = batch.attributes(attributes(options)?);
    if let Some(timeout) = options.timeout.as_ref().and_then(Span::as_limit) {
        batch = batch.timeout(timeout);
    }
    if let Some(timeout) = options.idle_timeout.as_ref().and_then(Span::as_limit) {
        batch = batch.idle_timeout(timeout);
    }
    if let Some(timeout) = options.batch_timeout.as_ref().and_then(Span::as_limit) {
        batch = batch.batch_timeout(timeout);
    }
    if let Some(bytes) = options.max_output {
        batch = batch.limit_bytes(bytes);
    }
    Ok(match options.halt {
        Some(rule) => batch.halt(rule),
        None => batch,
    })
}

/// Returns the name of a file with the placeholders of the command.
fn file_name(option: &str, file: &OsStr, options: &BatchOptions) -> Result<Template, Failure> {
    let replaced = options.input.replace.as_deref().unwrap_or("{}");
    let parsed = Template::parse_text_replacing(file, replaced);
    parsed.map_err(|error| Failure(format!("{option}: {error}")))
}

/// Returns the file of `+FILE`, as GNU parallel has it. `./+FILE` is a file of that name.
fn appended(path: &Path) -> Result<Option<PathBuf>, Failure> {
    let Some(name) = path.as_os_str().as_encoded_bytes().strip_prefix(b"+") else {
        return Ok(None);
    };
    match from_encoded_bytes(name.to_vec()) {
        Ok(name) if !name.is_empty() => Ok(Some(name.into())),
        _ => Err(Failure("--joblog + names no file: write --joblog +FILE".to_owned())),
    }
}

/// Returns what each job starts with, as the options of `run` say it.
fn attributes(options: &BatchOptions) -> Result<JobAttributes, Failure> {
    let environment = &options.environment;
    let on_nodes = options.on.is_some() || !options.via.is_empty() || options.via_file.is_some();
    if environment.user.is_some() && on_nodes {
        return Err(Failure("--user does not fit nodes, which have users of their own".to_owned()));
    }
    if let (Some(limit), Containing::Group) =
        (options.resources.first(), options.contain.to_containing())
    {
        return Err(Failure(format!("{limit} needs --contain tree: a group holds no limit")));
    }
    let mut attributes = JobAttributes::default();
    attributes.env_clear = environment.clear_env;
    attributes.user = environment.user.as_deref().map(find_user).transpose()?;
    attributes.nice = environment.nice;
    attributes.umask = environment.umask;
    attributes.limits = options.resources.limits(false);
    Ok(attributes)
}

fn output(options: &BatchOptions) -> Result<OutputOptions, Failure> {
    let mut output = OutputOptions::default();
    let unfit = [
        ("--line-buffer", options.line_buffer, options.show_output != ShowOutput::Always),
        ("--keep-order", options.keep_order, options.show_output == ShowOutput::Never),
        ("--tagstring", options.tagstring.is_some(), options.show_output == ShowOutput::Never),
        ("--tag", options.tag, options.show_output == ShowOutput::Never),
    ];
    if let Some((name, ..)) = unfit.into_iter().find(|(_, is_set, is_unfit)| *is_set && *is_unfit) {
        let when = options.show_output.to_possible_value();
        let when = when.as_ref().map_or("", |when| when.get_name());
        return Err(Failure(format!("{name} does not fit --show-output {when}")));
    }
    output.mode = match options.show_output {
        _ if options.output_on_nodes => OutputMode::Discard,
        ShowOutput::Never => OutputMode::Discard,
        ShowOutput::OnFailure => OutputMode::OnFailure,
        ShowOutput::Always if options.line_buffer => OutputMode::LineBuffer,
        ShowOutput::Always => OutputMode::Group,
    };
    output.keep_order = options.keep_order;
    output.tag = options.tag || options.tagstring.is_some();
    if let Some(text) = &options.tagstring {
        let parsed = Template::parse_text(text);
        output.tag_text =
            Some(parsed.map_err(|error| Failure(format!("--tagstring: {error}")))?.into());
    }
    output.dir = options.output_dir.clone();
    output.on_nodes = options.output_on_nodes;
    output.private = options.private;
    if let Some(dir) = output.dir.as_mut().filter(|_| options.output_on_nodes) {
        // Nodes have another working directory. An empty path is an error later.
        *dir = std::path::absolute(&dir).unwrap_or_else(|_| dir.clone());
    }
    // A job that exceeds --max-output is stopped, and the excess is not printed.
    let most = options.keep.head().into_iter().chain(options.max_output).min();
    output.max_bytes = most.map(|bytes| bytes as u64);
    output.head_and_tail = options.keep.head_and_tail()?;
    if output.head_and_tail.is_some() && output.on_nodes {
        let message = "--output-on-nodes keeps the head alone: write --keep-output BYTES";
        return Err(Failure(message.to_owned()));
    }
    output.spill_to = options.keep.spill.clone();
    Ok(output)
}

/// Returns the input and the command, for people who read the log.
fn description(options: &BatchOptions) -> String {
    if options.resume && options.log.is_none() {
        return format!("--resume {}", options.words.join(" ".as_ref()).to_string_lossy());
    }
    let command = String::from_utf8_lossy(&shell_quoted(&options.words)).into_owned();
    match &options.input.from {
        Some(path) => format!("{command} < {}", path.display()).trim_start().to_owned(),
        None => command,
    }
}

/// Returns the nodes that the options name. `None`: this machine.
pub(super) fn nodes(options: &BatchOptions) -> Result<Option<Nodes>, Failure> {
    let (mut nodes, mut count) = (Nodes::new(), 0);
    let mut add = |source: Source| -> Result<(), String> {
        for command in source.commands() {
            let words = command.map_err(|error: InputError| error.to_string())?.argv(1);
            nodes = std::mem::take(&mut nodes).via(words.map_err(|error| error.to_string())?);
            count += 1;
        }
        Ok(())
    };
    for command in &options.via {
        let bytes = command.as_encoded_bytes().to_vec();
        add(Source::new(Cursor::new(bytes))).map_err(|error| Failure(format!("--via: {error}")))?;
    }
    if let Some(path) = &options.via_file {
        add(Source::open(path).map_err(Failure::from_error)?).map_err(Failure)?;
    }
    if count == 0 && (options.via_file.is_some() || !options.via.is_empty()) {
        return Err(Failure("--via and --via-file name no command".to_owned()));
    }
    if let Some(EngineKind::Slurm) = options.on {
        nodes = nodes.slurm(slurm(options)?);
    } else if count == 0 {
        return match options.worker_path {
            Some(_) => Err(Failure("--worker-path needs --via or --on".to_owned())),
            None => Ok(None),
        };
    }
    if let Some(path) = &options.worker_path {
        nodes = nodes.worker_path(path);
    }
    if options.verbose {
        nodes = nodes.verbose();
    }
    if let Some(jobs) = options.jobs {
        nodes = nodes.slots_per_node(jobs.resolve());
    }
    Ok(Some(nodes))
}

/// Returns the allocation that the options describe.
fn slurm(options: &BatchOptions) -> Result<Slurm, Failure> {
    let mut slurm = Slurm::new(options.nodes);
    for argument in &options.slurm_arg {
        slurm = slurm.argument(argument);
    }
    if options.slurm_stdio {
        slurm = slurm.over_stdio();
    }
    if let Some(listen) = &options.listen {
        slurm = slurm.listen_on(address(listen)?);
    }
    Ok(slurm)
}

/// Returns the address that is named, or that of the interface of that name.
fn address(listen: &str) -> Result<IpAddr, Failure> {
    if let Ok(address) = listen.parse::<IpAddr>() {
        return match address.is_unspecified() {
            true => Err(Failure(format!("--listen {listen} would be every interface: name one"))),
            false => Ok(address),
        };
    }
    let addresses = network::addresses(listen);
    let addresses = addresses.map_err(Failure::cannot("list the network interfaces"))?;
    let none =
        || Failure(format!("--listen {listen:?}: there is no such interface with an address"));
    addresses.first().copied().ok_or_else(none)
}
