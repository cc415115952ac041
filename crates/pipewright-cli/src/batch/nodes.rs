//! The machines that run the jobs.

use std::io::Cursor;
use std::net::IpAddr;

use pipewright_batch::{InputError, Source};
use pipewright_cluster::{Nodes, Slurm};
use pipewright_os::host::interfaces;

use crate::Failure;
use crate::args::{BatchOptions, EngineKind};

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
    let addresses = interfaces::addresses(listen);
    let addresses = addresses.map_err(Failure::cannot("list the network interfaces"))?;
    let none =
        || Failure(format!("--listen {listen:?}: there is no such interface with an address"));
    addresses.first().copied().ok_or_else(none)
}
