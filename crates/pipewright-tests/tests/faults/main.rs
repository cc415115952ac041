//! Every call fails once: small uses of the product, in each of which the K-th call of a kind fails with each error
//! that it can have. What holds after each: a true error or a true success, no hang, nothing left, nothing run twice,
//! and the next call works as if nothing had been.
//!
//! The short run takes the cases that `PIPEWRIGHT_NET_SEED` picks; `PIPEWRIGHT_NET=all` takes all. To repeat one:
//! `PIPEWRIGHT_NET_CASE='tree|host memfd_create|1|EMFILE'`. Arguments are words in the names of scenarios.

#[cfg(not(target_os = "linux"))]
fn main() {
    println!(
        "SKIPPED need=linux faults: only Linux lets a program answer the system calls of another"
    );
}

#[cfg(target_os = "linux")]
mod calls;
#[cfg(target_os = "linux")]
mod case;
#[cfg(target_os = "linux")]
mod driver;
#[cfg(target_os = "linux")]
mod injector;
#[cfg(target_os = "linux")]
mod scenarios;
#[cfg(target_os = "linux")]
mod scene;

#[cfg(target_os = "linux")]
fn main() {
    if scenarios::serve() {
        return;
    }
    std::process::exit(driver::main());
}
