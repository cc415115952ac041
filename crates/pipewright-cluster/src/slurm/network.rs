//! The network on which Slurm's machines reach each other.

use std::net::{IpAddr, ToSocketAddrs as _, UdpSocket};

use pipewright::CancelToken;

use super::client::Call;
use super::error::SlurmError;

/// The port for the question which way leads to an address. Nothing is sent there.
const ANY_PORT: u16 = 6817;

/// Returns the address that this machine has on the network of Slurm's controller.
///
/// # Platform
/// `scontrol show config` for the name of the controller, and a UDP socket that is connected to it, which sends nothing.
///
/// `None`: Slurm does not say where its controller is, or no way leads there.
///
/// # Errors
/// The controller does not answer.
pub(crate) fn controller_address(cancel: &CancelToken) -> Result<Option<IpAddr>, SlurmError> {
    let printed = Call::new("scontrol", ["show", "config"]).until(cancel).run()?;
    Ok(controller(&printed).and_then(own_address))
}

/// Returns the address that this machine has on the way to that host.
fn own_address(host: &str) -> Option<IpAddr> {
    let address = (host, ANY_PORT).to_socket_addrs().ok()?.next()?;
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(address).ok()?;
    socket.local_addr().ok().map(|own| own.ip())
}

/// Returns the address, or the name, of the first controller.
fn controller(config: &str) -> Option<&str> {
    let line = config.lines().find(|line| line.trim_start().starts_with("SlurmctldHost"))?;
    let value = line.split_once('=')?.1.trim();
    // As in `head1(10.0.0.1)`.
    let inside = value.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inside.or(Some(value)).filter(|host| !host.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controller_is_found_in_what_scontrol_prints() {
        let config = |line: &str| {
            format!("Configuration data as of 2026-11-26T03:00:00\nSlurmUser = root(0)\n{line}\n")
        };
        assert_eq!(
            controller(&config("SlurmctldHost[0]        = head(10.0.0.1)")),
            Some("10.0.0.1")
        );
        assert_eq!(controller(&config("SlurmctldHost[0]        = head")), Some("head"));
        assert_eq!(controller(&config("SlurmctldPort           = 6817")), None);
    }
}
